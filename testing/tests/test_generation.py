"""The kit's runs through the engine are such that something can go wrong in them."""

from __future__ import annotations

import pytest
from kit_subjects.toys import Chain, kit_config

from specdec import LLM
from specdec_testing.support import generation
from specdec_testing.support.subjects import path_of
from specdec_testing.support.target import check_target
from specdec_testing.support.texts import repetitive


def test_prompts_run_in_pieces_and_requests_are_preempted(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LLM] = []

    class Kept(LLM):
        def __init__(self, *arguments, **keys) -> None:
            super().__init__(*arguments, **keys)
            made.append(self)

    monkeypatch.setattr(generation, "LLM", Kept)
    target = check_target("tiny")
    prompts = [repetitive(97, seed, length) for seed, length in enumerate((40, 7, 33, 2, 25))]
    speculation = {"method": path_of(Chain), **kit_config()}
    tokens = generation.generate(target, speculation, prompts, 0.8)
    assert tokens == generation.generate(target, None, prompts, 0.8)
    assert [len(row) for row in tokens] == [generation.MAX_TOKENS] * 5
    metrics = made[0]._built.engine.metrics
    assert metrics.num_preemptions > 0
    assert metrics.num_accepted_tokens > 0
    assert metrics.num_draft_tokens > metrics.num_accepted_tokens
