"""Which drafted tokens are accepted above temperature 0: by vLLM's own noise, or in distribution."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from stub_engine import VOCAB, StubParams, StubRejectionSampler, StubState
from support import PROMPTS, add_all, bound, counted, distance, known, stock_texts

from specdec import registry
from specdec.interfaces import CheckedDraft, DraftSampling, DrawnNodes
from specdec.samplers.strict import StrictSampler
from specdec_vllm.requests import Requests
from specdec_vllm.verifier import Verifier


def test_cuts_are_each_requests_own() -> None:
    texts = stock_texts(1.0, top_k=3)
    runner, binding = bound(known(texts, wrong=0.3))
    add_all(runner, 1.0, top_k=3)
    assert runner.run() == texts
    assert counted(binding, "num_accepted_tokens") > 20


def test_requests_of_every_kind_share_a_batch() -> None:
    greedy, drawn = stock_texts(), stock_texts(0.9)
    runner, _ = bound(known(greedy | {f"{n} drawn": t for n, t in drawn.items()}))
    for index, prompt in enumerate(PROMPTS):
        runner.add(f"g{index}", prompt, StubParams())
        runner.add(f"d{index}", prompt, StubParams(temperature=0.9, seed=100 + index))
        runner.add(f"u{index}", prompt, StubParams(temperature=0.9))
    said = runner.run()
    assert [said[f"g{i}"] for i in range(4)] == list(greedy.values())
    assert [said[f"d{i}"] for i in range(4)] == list(drawn.values())
    assert all(len(said[f"u{i}"]) == len(greedy[f"r{i}"]) for i in range(4))


@pytest.mark.parametrize("method", ["strict", "block"])
def test_requests_without_a_seed_follow_the_law(method) -> None:
    """The first two tokens behind one prompt, of many requests, with a draft that is often wrong, and without drafts."""
    torch.manual_seed(0)  # of what vLLM draws for requests without drafts
    histograms = []
    for config in (known({"x": [5, 9, 1, 2, 3, 4]}, rejection_sample_method=method), None):
        counts = torch.zeros(2, VOCAB)
        runner, binding = bound(config or known({}))
        for index in range(600):
            extra = {} if config else {"specdec_num_speculative_tokens": 0}
            runner.add(f"s{index}", [5, 9], StubParams(temperature=1.5, max_tokens=4, extra_args=extra))
        for text in runner.run().values():
            for place in range(2):
                counts[place, text[3 + place]] += 1
        histograms.append(counts)
        assert (counted(binding, "num_drafts") > 100) is (config is not None)
    for place in range(2):
        assert distance(histograms[0][place], histograms[1][place]) < 0.17  # noise alone gives 0.12 +- 0.015


def test_trial_runs_of_vllm_are_left_to_it() -> None:
    stock = SimpleNamespace(calls=[])
    runner = SimpleNamespace(input_batch=SimpleNamespace(num_reqs=0))
    verifier = Verifier(
        lambda *given: stock.calls.append(given), runner, Requests(0, "seeded"), StrictSampler(None)
    )
    metadata = SimpleNamespace(num_draft_tokens=[1, 1])
    assert verifier(metadata, None, torch.zeros(4, VOCAB), "sampling") is None
    assert stock.calls[0][0] is metadata


LAWS = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
"""What drafted tokens are drawn from: the first distribution in one half of the requests, the second in the other."""
DRAWN = 6000


def verified(
    p: list[float], drafts: dict[str, list[int]], told: tuple[CheckedDraft, dict[str, int]], **keys: Any
) -> dict[str, list[int]]:
    """Return what is emitted for drafts of at most one token, where every token has the distribution p."""
    counts = [len(ids) for ids in drafts.values()]
    starts = [sum(counts[:row]) + row for row in range(len(counts))]
    metadata = SimpleNamespace(
        num_draft_tokens=counts,
        draft_token_ids=torch.tensor([token for ids in drafts.values() for token in ids]),
        max_spec_len=1,
        target_logits_indices=torch.tensor([s for s, n in zip(starts, counts, strict=True) if n]),
        bonus_logits_indices=torch.tensor([s + n for s, n in zip(starts, counts, strict=True)]),
    )
    sampling = SimpleNamespace(
        temperature=torch.ones(len(counts)), top_k=None, top_p=None, generators={}, max_num_logprobs=None, all_greedy=False,
        no_penalties=True, allowed_token_ids_mask=None, bad_words_token_ids={}, thinking_budget_state_holder=None,
        logitsprocs=SimpleNamespace(argmax_invariant=[]),
    )  # fmt: skip
    batch = SimpleNamespace(
        req_ids=list(drafts), num_reqs=len(counts), num_tokens_no_spec=np.full(len(counts), 5, np.int32)
    )
    states = {name: StubState([1] * 5, StubParams(temperature=1.0, **keys)) for name in drafts}
    runner = SimpleNamespace(input_batch=batch, requests=states)
    sampler = registry.sampler("probabilistic")
    verifier = Verifier(StubRejectionSampler(), runner, Requests(0, "none"), sampler(sampler.Config()))
    verifier.note_drafts(*told)
    logits = torch.tensor(p).log().expand(sum(counts) + len(counts), -1)
    emitted = verifier(metadata, None, logits, sampling).sampled_token_ids.tolist()
    return {name: [t for t in row if t >= 0] for name, row in zip(drafts, emitted, strict=True)}


def drawn_drafts() -> tuple[dict[str, list[int]], tuple[CheckedDraft, dict[str, int]]]:
    """Return one drafted token for each request, and what the verifier is told of them."""
    laws = LAWS.repeat_interleave(DRAWN // 2, 0)
    ids = laws.multinomial(1, generator=torch.Generator().manual_seed(3))
    probs = laws[:, None].repeat(1, 2, 1)
    rows = tuple(map(tuple, ids.tolist()))
    draft = CheckedDraft(rows, drawn=DrawnNodes(ids, probs, DraftSampling.IID))
    names = [f"r{row}" for row in range(DRAWN)]
    return dict(zip(names, map(list, rows), strict=True)), (draft, {n: i for i, n in enumerate(names)})


@pytest.mark.parametrize("how", ["as it was", "turned", "joined", "grammar"])
def test_drafts_drawn_from_q_follow_the_law_of_the_target(how) -> None:
    drafts, told = drawn_drafts()
    p, keys = [0.4, 0.3, 0.2, 0.1], {}
    if how == "turned":
        drafts = dict(reversed(drafts.items()))
    if how == "joined":  # prompts whose first token is chosen in the same step
        drafts = {f"new{row}": [] for row in range(3)} | drafts
    if how == "grammar":  # vLLM has cut drafts before a token that may not come
        p, keys = [0.5, 0.3, 0.2, 0.0], {"structured_outputs": "a grammar"}
        drafts = {name: [t for t in ids if p[t]] for name, ids in drafts.items()}
    emitted = verified(p, drafts, told, **keys)
    first = torch.tensor([ids[0] for ids in emitted.values()]).bincount(minlength=4)
    assert distance(first.float(), torch.tensor(p)) < 0.03  # noise alone gives 0.01
    accepted = sum(len(ids) - 1 for ids in emitted.values()) / DRAWN
    q = LAWS.mean(0)
    is_used = how != "grammar"
    expected = torch.minimum(LAWS, torch.tensor(p)).sum(1).mean() if is_used else (q * torch.tensor(p)).sum()
    assert accepted == pytest.approx(float(expected), abs=0.03)


class OnlySeven(StubRejectionSampler):
    """Processors that let nothing but token 7 through."""

    def __init__(self) -> None:
        super().__init__()
        self.num_calls = 0
        self.sampler.apply_logits_processors = lambda logits, *_: self.apply_logits_processors(logits, *_)  # type: ignore[method-assign]

    def apply_logits_processors(self, logits, *_):
        self.num_calls += 1
        changed = torch.full_like(logits, -torch.inf)
        changed[:, 7] = 0.0
        return changed


CHANGES = {
    "nothing": ({}, {}),
    "penalties": ({"no_penalties": False}, {}),
    "allowed": ({"allowed_token_ids_mask": torch.zeros(2, VOCAB, dtype=torch.bool)}, {}),
    "bad words": ({"bad_words_token_ids": {0: [[3]]}}, {}),
    "budgets": ({"thinking_budget_state_holder": SimpleNamespace(has_tracked_requests=lambda: True)}, {}),
    "idle budgets": (
        {"thinking_budget_state_holder": SimpleNamespace(has_tracked_requests=lambda: False)},
        {},
    ),
    "min_tokens": ({}, {"min_tokens": 5}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_greedy_tokens_are_read_as_they_are_only_if_nothing_changes_them(what) -> None:
    keys, params = CHANGES[what]
    states = {name: StubState([1] * 5, StubParams(**params)) for name in "ab"}
    batch = SimpleNamespace(req_ids=list(states), num_reqs=2, num_tokens_no_spec=np.full(2, 5, np.int32))
    runner = SimpleNamespace(input_batch=batch, requests=states)
    stock = OnlySeven()
    verifier = Verifier(stock, runner, Requests(0, "seeded"), StrictSampler(None))
    sampling = SimpleNamespace(
        temperature=None, top_k=None, top_p=None, generators={}, max_num_logprobs=None, all_greedy=True,
        **{"no_penalties": True, "allowed_token_ids_mask": None, "bad_words_token_ids": {},
           "thinking_budget_state_holder": None} | keys,
    )  # fmt: skip
    metadata = SimpleNamespace(
        num_draft_tokens=[2, 1],
        draft_token_ids=torch.tensor([4, 9, 5]),
        max_spec_len=2,
        target_logits_indices=torch.tensor([0, 1, 3]),
        bonus_logits_indices=torch.tensor([2, 4]),
    )
    logits = torch.zeros(5, VOCAB, dtype=torch.bfloat16)
    for row, token in enumerate([4, 8, 9, 5, 6]):
        logits[row, token] = 2.0
    emitted = verifier(metadata, None, logits, sampling).sampled_token_ids.tolist()
    if what in ("nothing", "idle budgets"):
        assert emitted == [[4, 8, -1], [5, 6, -1]]
        assert stock.num_calls == 0
    else:
        assert emitted == [[7, -1, -1], [7, -1, -1]]
        assert stock.num_calls == 2
