"""The distribution of what `probabilistic` and `block` sample, in the whole engine, against exact enumeration.

A model of few ids; all texts of three tokens are enumerated. Seeds are fixed, so the result is the same in every run.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Literal

import pytest
import torch
from speccheck.engines import engine_of, make_llm, scripted, tokens_of
from speccheck.models import few_ids
from speccheck.naive import Constraints, TextProbs, text_probs
from speccheck.texts import excess_of_texts

from specdec import SamplingParams
from specdec.interfaces import (
    Capability,
    Draft,
    DraftSampling,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetInfo,
)

VOCAB = 5
LENGTH = 3
MAX_TOKENS = 4
PROMPT = [1, 4, 0, 2]
SAMPLES = 2000
SAMPLERS = ("probabilistic", "block")


class DrawnConfig(ProposerConfig):
    """What a proposer that draws is like."""

    shape: Literal["chain", "iid", "without_replacement", "mixed"] = "chain"
    learns: bool = False
    """Let q depend on what was discarded of the last draft."""
    num_foreign: int = 0
    """Ids that q speaks of beyond the target's."""
    is_reduced: bool = False
    """Draft over four of the five ids, in another order."""
    lies: bool = False
    """Report a q that is flatter than the distribution drawn from."""
    fails_every: int = 0
    draws_all: bool = False
    """Draw for rows without a limit too, as loops on devices do, and say of each row that it has q."""


class Drawn(Proposer):
    """Draws its tokens from a distribution that depends on the last token, with the noise that core hands out."""

    name: ClassVar[str] = "drawn"
    Config: ClassVar[type[ProposerConfig]] = DrawnConfig
    capabilities = frozenset({Capability.TREE, Capability.DRAFT_PROBS})

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        assert isinstance(config, DrawnConfig)
        self.own = config
        self.size = VOCAB + config.num_foreign
        self.ids = torch.tensor([3, 0, 4, 1]) if config.is_reduced else torch.arange(self.size)
        generator = torch.Generator().manual_seed(8)
        self.logits = 1.5 * torch.randn(self.size, len(self.ids), generator=generator)
        self.last: dict[str, list[int]] = {}
        self.num_calls = 0

    def parents(self, count: int) -> list[int]:
        """Return a chain, or a tree in which nodes have two children where there is room."""
        is_chain = self.own.shape == "chain" or (self.own.shape == "mixed" and self.num_calls % 2 == 0)
        return list(range(-1, count - 1)) if is_chain else [-1, -1, 0, 0][:count]

    def propose(self, batch: ProposeBatch) -> Draft:
        self.num_calls += 1
        if self.own.fails_every and self.num_calls % self.own.fails_every == 0:
            raise RuntimeError("on a whim")
        width = max(batch.max_nodes)
        parents = self.parents(width)
        logits = torch.zeros(batch.batch_size, width + 1, len(self.ids))
        q = torch.full_like(logits, torch.nan)  # of nodes without children nobody may look at it
        tokens = torch.full((batch.batch_size, width), -1)
        memory = [self.discarded(batch, row) for row in range(batch.batch_size)]
        for node, parent in enumerate(parents):
            limits = [width] * batch.batch_size if self.own.draws_all else batch.max_nodes
            rows = [row for row in range(batch.batch_size) if node < limits[row]]
            for row in rows:
                last = int(batch.token_ids(row)[-1]) if parent < 0 else int(tokens[row, parent])
                law = self.logits[last].clone()
                if memory[row]:
                    law[torch.isin(self.ids, torch.tensor(memory[row]))] += 2.0
                taken = tokens[row, [j for j in range(node) if parents[j] == parent]]
                logits[row, parent + 1] = law
                q[row, parent + 1] = torch.softmax(0.5 * law if self.own.lies else law, -1)
                if self.own.shape == "without_replacement":
                    logits[row, parent + 1, torch.isin(self.ids, taken)] = -torch.inf
            drawn, _ = batch.draws.sample(logits[rows, parent + 1], rows, node)
            tokens[rows, node] = self.ids[drawn]
        for row, name in enumerate(batch.request_ids):
            self.last[name] = tokens[row].tolist()
        is_without = self.own.shape == "without_replacement"
        is_chain = parents == list(range(-1, width - 1))
        return Draft(
            token_ids=tokens,
            parents=None if is_chain else torch.tensor([parents] * batch.batch_size),
            sampling=DraftSampling.WITHOUT_REPLACEMENT if is_without else DraftSampling.IID,
            node_probs=q,
            has_probs=torch.ones(batch.batch_size, dtype=torch.bool) if self.own.draws_all else None,
            vocab_map=self.ids if self.own.is_reduced else None,
        )

    def discarded(self, batch: ProposeBatch, row: int) -> list[int]:
        """Return what of the last draft is not in the text, which proposers with exact q may learn from."""
        if not self.own.learns or batch.request_ids[row] not in self.last:
            return []
        old, text = self.last[batch.request_ids[row]], batch.token_ids(row)[len(PROMPT) :].tolist()
        return [token for token in old if token >= 0 and token not in text]


def drawn(k: int = 4, **keys) -> dict:
    return {"method": f"{__file__}:Drawn", "num_speculative_tokens": k} | keys


@pytest.fixture(scope="module")
def model():
    return few_ids(VOCAB, flatness=0.25)


@pytest.fixture(scope="module")
def law(model) -> TextProbs:
    """The exact distribution of three tokens at temperature 0.9, the least likely id of each row left out."""
    short = params(1)[0].model_copy(update={"max_tokens": LENGTH})
    return text_probs(model, PROMPT, short, Constraints(), lambda text: False)


def params(count: int = SAMPLES) -> list[SamplingParams]:
    return [
        SamplingParams(temperature=0.9, top_k=4, max_tokens=MAX_TOKENS, seed=1_000_003 * i, ignore_eos=True)
        for i in range(count)
    ]


def sampled(model, config: dict, sampler: str, **arguments):
    return make_llm(
        model, config | {"rejection_sample_method": sampler}, max_model_len=16, max_num_seqs=64, **arguments
    )


def run(model, config: dict, sampler: str, count: int = SAMPLES) -> tuple[Counter, object]:
    llm = sampled(model, config, sampler)
    texts = tokens_of(llm, [PROMPT] * count, params(count))
    return Counter(tuple(text[:LENGTH]) for text in texts), engine_of(llm).metrics


PROPOSERS = {
    "no q, chain": scripted(k=4, wrong=0.2),
    "no q, tree": scripted(k=6, shape="tree", wrong=0.2),
    "no q, errs": scripted("Recorder", k=3, shape="mixed", fails_every=3, malformed_every=4),
    "chain": drawn(),
    "iid tree": drawn(shape="iid"),
    "tree without replacement": drawn(shape="without_replacement"),
    "learns": drawn(shape="mixed", learns=True, fails_every=5),
    "reduced": drawn(is_reduced=True),
    "foreign": drawn(shape="iid", num_foreign=2),
}


SOME = {
    "probabilistic": (
        "no q, chain",
        "no q, tree",
        "chain",
        "iid tree",
        "tree without replacement",
        "foreign",
    ),
    "block": ("no q, errs", "chain", "iid tree", "tree without replacement", "learns", "reduced"),
}


def check_law(model, law, name: str, sampler: str, count: int) -> None:
    config = PROPOSERS[name]
    if "no q" in name:
        best = sorted(law, key=law.__getitem__, reverse=True)[:2]
        config = config | {"texts": [[*PROMPT, *text] for text in best]}
    counts, metrics = run(model, config, sampler, count)
    assert excess_of_texts(counts, law) < 1
    assert metrics.num_accepted_tokens > count / 4
    assert (metrics.proposer_nodes_cut > 0) == (name in ("foreign", "no q, errs"))
    assert (metrics.proposer_errors > 0) == (name in ("learns", "no q, errs"))


@pytest.mark.parametrize(("sampler", "name"), [(sampler, name) for sampler in SOME for name in SOME[sampler]])
@pytest.mark.sampled(4, slow=4)
def test_sampled_texts_follow_the_exact_law(model, law, name, sampler) -> None:
    check_law(model, law, name, sampler, SAMPLES)


@pytest.mark.full
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", PROPOSERS)
def test_many_sampled_texts_follow_the_exact_law(model, law, name, sampler) -> None:
    check_law(model, law, name, sampler, 8 * SAMPLES)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_false_q_is_found(model, law, sampler) -> None:
    counts, _ = run(model, drawn(lies=True), sampler)
    assert excess_of_texts(counts, law) > 1.5


def test_block_verification_accepts_more(model) -> None:
    accepted = {
        sampler: run(model, drawn(), sampler, count=1000)[1].num_accepted_tokens for sampler in SAMPLERS
    }
    assert accepted["block"] > accepted["probabilistic"]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("shape", ["chain", "iid"])
def test_greedy_rows_in_a_sampled_batch_are_those_of_plain_decoding(model, sampler, shape) -> None:
    greedy = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    prompts = [[i % VOCAB, (i // VOCAB) % VOCAB, 2] for i in range(20)]
    expected = tokens_of(make_llm(model, max_model_len=16), prompts, greedy)
    mixed = [greedy if i % 2 else params(20)[i] for i in range(20)]
    llm = sampled(model, drawn(shape=shape), sampler)
    got = tokens_of(llm, prompts, mixed)
    assert got[1::2] == expected[1::2]
    assert tokens_of(sampled(model, drawn(shape=shape), sampler), prompts, greedy) == expected


@pytest.mark.parametrize("sampler", [*SAMPLERS, "typical"])
@pytest.mark.parametrize("shape", ["chain", "iid"])
def test_same_seed_same_text_in_any_batch_and_order(model, sampler, shape) -> None:
    asked = params(24)
    texts = tokens_of(sampled(model, drawn(shape=shape), sampler), [PROMPT] * 24, asked)
    backwards = tokens_of(sampled(model, drawn(shape=shape), sampler), [PROMPT] * 24, asked[::-1])
    assert backwards[::-1] == texts
    alone = sampled(model, drawn(shape=shape), sampler)
    assert [tokens_of(alone, [PROMPT], one)[0] for one in asked[:6]] == texts[:6]
    assert len({tuple(text) for text in texts}) > 12


def test_bad_q_costs_drafts_and_nothing_else(model, law, monkeypatch) -> None:
    """Every other call reports a q that is not a number: those drafts are cut, the distribution stays."""

    def sometimes_not_a_number(self: Proposer, batch: ProposeBatch) -> Draft:
        draft = Drawn.propose(self, batch)  # type: ignore[arg-type]  # it is one
        if self.num_calls % 2:  # type: ignore[attr-defined]
            assert draft.node_probs is not None
            draft.node_probs[:, min(1, draft.node_probs.shape[1] - 1)] = torch.nan
        return draft

    llm = sampled(model, drawn(), "block")
    guard = engine_of(llm)._speculation._guard
    monkeypatch.setattr(guard, "proposer", guard.proposer)
    proposer = guard.proposer
    monkeypatch.setattr(type(proposer), "propose", sometimes_not_a_number, raising=True)
    counts = Counter(tuple(text[:LENGTH]) for text in tokens_of(llm, [PROMPT] * SAMPLES, params()))
    assert excess_of_texts(counts, law) < 1
    assert engine_of(llm).metrics.proposer_nodes_cut > 100
