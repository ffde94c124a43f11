"""What stands of a draft, at temperatures: by vLLM's own noise, or in law."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from stub_engine import VOCAB, StubParams
from support import PROMPTS, add_all, bound, counted, distance, known, stock_texts

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
