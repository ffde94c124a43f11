"""How long a proposer may take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np
import pytest

from specdec.engine.containment.guard import ProposerGuard
from specdec.interfaces import (
    Capability,
    Draft,
    Draws,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetInfo,
    one_time_work,
    step_time,
)
from specdec.interfaces.batch import TokenIds
from specdec.sampling_params import SamplingParams

pytestmark = pytest.mark.time_budget


class Sleeper(Proposer):
    """Takes a fifth of a second for every call."""

    name: ClassVar[str] = "sleeper"
    seconds = 0.2

    def propose(self, batch: ProposeBatch) -> Draft:
        time.sleep(self.seconds)
        return Draft.empty(batch.batch_size)


def batch_of(counts: Sequence[int]) -> ProposeBatch:
    """A step that brings so many new tokens for each row."""
    size = len(counts)
    return ProposeBatch(
        request_ids=tuple(map(str, range(size))),
        max_nodes=[0] * size,
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
    monkeypatch.setattr("specdec.engine.containment.guard._WARMUP_STEPS", 0)
    guard = guard_of(Sleeper)
    guard.observe_target(0.001)  # so the budget is the least there is, 50 ms
    assert guard.propose(batch_of(counts), [0] * len(counts)) is not None
    assert guard.metrics.proposer_overruns == is_overrun


@pytest.mark.parametrize(("most", "is_overrun"), [(1, True), (4, True), (6, False)])
def test_each_token_of_a_form_of_the_target_may_take_a_pass(
    monkeypatch: pytest.MonkeyPatch, most: int, is_overrun: bool
) -> None:
    class OnTarget(Sleeper):
        capabilities = frozenset({Capability.TARGET_CACHE})

    monkeypatch.setattr("specdec.engine.containment.guard._WARMUP_STEPS", 0)
    guard = guard_of(OnTarget)
    guard.observe_target(0.04)
    guard.propose(batch_of([1]), [most])
    assert guard.metrics.proposer_overruns == is_overrun


def test_work_that_is_done_once_counts_for_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiling(Sleeper):
        name: ClassVar[str] = "compiling"

        def propose(self, batch: ProposeBatch) -> Draft:
            with one_time_work():
                with one_time_work():
                    time.sleep(0.1)
                return super().propose(batch)

    monkeypatch.setattr("specdec.engine.containment.guard._WARMUP_STEPS", 0)
    guard = guard_of(Compiling)
    guard.observe_target(0.001)
    started, begun = time.perf_counter(), step_time()
    guard.propose(batch_of([1]), [1])
    assert guard.metrics.proposer_overruns == 0
    # What is inside of other such work is not counted twice.
    assert 0.0 <= step_time() - begun <= time.perf_counter() - started - 0.3


class Resuming(Sleeper):
    """Says after a while that it holds everything."""

    name: ClassVar[str] = "resuming"

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        time.sleep(0.06)
        return len(token_ids)


def guard_of(proposer: type[Proposer]) -> ProposerGuard:
    made = proposer(ProposerConfig(num_speculative_tokens=1), cast(TargetInfo, None))
    return ProposerGuard(made, 8, is_fallback=True, is_strict=False)


def test_a_slow_resume_counts_and_is_not_called_during_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec.engine.containment.guard._WARMUP_STEPS", -1)
    guard, ids = guard_of(Resuming), np.arange(5, dtype=np.int32)
    assert [guard.resume("r", ids) for _ in range(5)] == [5, 5, 5, 0, 0]
    assert (guard.metrics.proposer_overruns, guard.metrics.proposer_pauses) == (3, 1)


def test_pauses_are_short_again_after_many_good_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec.engine.containment.guard._WARMUP_STEPS", -1)
    guard, ids = guard_of(Resuming), np.arange(5, dtype=np.int32)

    def length_of_pause() -> int:
        for _ in range(3):
            guard.resume("r", ids)
        steps = 0
        while guard.pause_left:
            guard.pause_left -= 1
            steps += 1
        return steps

    assert [length_of_pause() for _ in range(2)] == [64, 128]
    monkeypatch.setattr(Sleeper, "seconds", 0.0)
    for _ in range(511):
        guard.propose(batch_of([1]), [0])
    assert length_of_pause() == 256
    for _ in range(512):
        guard.propose(batch_of([1]), [0])
    assert length_of_pause() == 64


def test_a_long_prefix_may_take_long_to_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec.engine.containment.guard._WARMUP_STEPS", -1)
    guard, ids = guard_of(Resuming), np.arange(320, dtype=np.int32)
    assert [guard.resume("r", ids) for _ in range(5)] == [320] * 5
    assert (guard.metrics.proposer_overruns, guard.metrics.proposer_pauses) == (0, 0)
