"""How long a proposer may take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np
import pytest

from specdec.engine.guard import ProposerGuard
from specdec.interfaces import Draft, Draws, ProposeBatch, Proposer, ProposerConfig, TargetInfo
from specdec.sampling_params import SamplingParams


class Sleeper(Proposer):
    """Takes a fifth of a second for every call."""

    name: ClassVar[str] = "sleeper"

    def propose(self, batch: ProposeBatch) -> Draft:
        time.sleep(0.2)
        return Draft.empty(batch.batch_size)


def batch_of(counts: Sequence[int]) -> ProposeBatch:
    """A step that brings so many new tokens for each row."""
    size = len(counts)
    return ProposeBatch(
        request_ids=tuple(map(str, range(size))),
        max_nodes=[0] * size,
        max_depth=[0] * size,
        num_tokens=list(counts),
        num_prompt_tokens=list(counts),
        starts=[0] * size,
        counts=list(counts),
        new_token_ids=np.zeros(sum(counts), np.int32),
        last_num_drafted=[0] * size,
        last_num_accepted=[0] * size,
        sampling_params=(SamplingParams(),) * size,
        draws=cast(Draws, None),
        token_ids_of=lambda row: np.zeros(counts[row], np.int32),
    )


@pytest.mark.parametrize(
    ("counts", "is_overrun"),
    [([1], True), ([1] * 400, True), ([1, 32], True), ([1000], False), ([2, 1000, 3], False)],
)
def test_a_prompt_may_take_as_many_steps_as_it_has_pieces(
    monkeypatch: pytest.MonkeyPatch, counts: list[int], is_overrun: bool
) -> None:
    monkeypatch.setattr("specdec.engine.guard._WARMUP_STEPS", 0)
    proposer = Sleeper(ProposerConfig(num_speculative_tokens=1), cast(TargetInfo, None))
    guard = ProposerGuard(proposer, 8, is_fallback=True, is_strict=False)
    guard.observe_score(0.001)  # so the budget is the least there is, 50 ms
    assert guard.propose(batch_of(counts), [0] * len(counts)) is not None
    assert guard.counters.num_overruns == is_overrun
