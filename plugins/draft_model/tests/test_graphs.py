"""Chains that are drafted in recorded loops are those that are drafted token by token."""

from __future__ import annotations

import pytest
from speccheck.models import tiny
from speccheck.recorder import RecordingBackend, Rerun, told, use_backends

from specdec import LLM, SamplingParams

PROMPTS = [[(i * i + 7 * i + n) % 60 for i in range(n)] for n in (9, 3)]
TEMPERATURES = (0.9, 0.0)


@pytest.mark.interpreter
@pytest.mark.parametrize("method", ["greedy", "coupled", "probabilistic"])
def test_drafts_of_recorded_loops(method, make_draft, monkeypatch) -> None:
    target = tiny("llama")
    draft = make_draft(target.config.vocab_size)
    verification = "probabilistic" if method == "probabilistic" else "strict"
    seen = []
    for recorder in (None, Rerun()):
        use_backends(monkeypatch, RecordingBackend(recorder))
        llm = LLM(
            target,
            speculative_config={
                "method": "draft_model",
                "model": draft,
                "num_speculative_tokens": 3,
                "draft_sample_method": method,
                "rejection_sample_method": verification,
                "on_proposer_error": "raise",
            },
            max_model_len=96,
            skip_tokenizer_init=True,
            attention_backend="triton",
            device="cpu",
        )
        params = [
            SamplingParams(temperature=t, seed=seed, max_tokens=12, ignore_eos=True)
            for seed, t in enumerate(TEMPERATURES)
        ]
        outputs = llm.generate(PROMPTS, params)
        seen.append(told(llm, outputs))
    assert seen[0] == seen[1]
    loops = llm._built.engine.proposer._runner.chain
    assert loops.failure is None
    assert loops.num_replays > loops.num_recordings > 0
    counts = {
        metric.name: metric.value for metric in llm.get_metrics() if metric.name.startswith("specdec:graph")
    }
    assert counts["specdec:graph_replays"] >= loops.num_replays
    assert counts["specdec:graph_bytes"] >= loops.num_bytes > 0
    assert counts["specdec:graph_failures"] == 0
