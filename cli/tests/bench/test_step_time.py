"""Times of steps: which passes run twice, what counts, and where the rest goes."""

from __future__ import annotations

import time

import pytest
import torch

from specdec.interfaces import StepStats
from specdec_cli.bench.forward_probe import ForwardProbe
from specdec_cli.bench.step_time import StepLog, StepTime, median_times


def step(is_decode: bool = True, score: float = 1.0, forward: float | None = None) -> StepTime:
    return StepTime(is_decode, 0.1 * score, score, 0.2 * score, 0.3 * score, forward)


def test_every_nth_pass_runs_again_and_its_time_is_kept() -> None:
    probe, runs = ForwardProbe(torch.device("cpu"), every=3), []
    times = []
    for index in range(7):
        probe(lambda index=index: (runs.append(index), time.sleep(0.002)))
        times.append(probe.last_ms)
    assert runs == [1, 4]
    assert [at for at, value in enumerate(times) if value is not None] == [1, 4]
    assert all(value >= 2.0 for value in times if value is not None)
    assert probe.total_s == pytest.approx(sum(value for value in times if value is not None) / 1e3)


def test_every_pass_can_run_again() -> None:
    probe, runs = ForwardProbe(torch.device("cpu"), every=1), []
    for index in range(3):
        probe(lambda index=index: runs.append(index))
    assert runs == [0, 1, 2]


def test_medians_leave_out_prompts_and_steps_that_ran_twice() -> None:
    steps = [
        step(False, 100.0),
        step(score=1.0),
        step(score=50.0, forward=0.7),
        step(score=2.0),
        step(score=3.0),
    ]
    assert median_times(steps) == {
        "propose_ms": pytest.approx(0.2),
        "score_ms": 2.0,
        "verify_ms": pytest.approx(0.4),
        "other_ms": pytest.approx(0.6),
        "forward_ms": 0.7,
    }


def test_what_there_is_counts_where_there_is_nothing_better() -> None:
    assert median_times([step(False, 4.0)])["score_ms"] == 4.0
    assert median_times([step(False, 4.0)])["forward_ms"] is None
    assert median_times([step(score=9.0, forward=5.0)])["score_ms"] == 9.0


def test_other_is_all_that_nobody_measured() -> None:
    log = StepLog(ForwardProbe(torch.device("cpu")))
    time.sleep(0.02)
    numbers = dict.fromkeys(StepStats.__dataclass_fields__, 0)
    log.add(StepStats(**{**numbers, "propose_ms": 1.0, "score_ms": 2.0, "verify_ms": 3.0}))
    log.add(StepStats(**{**numbers, "num_prompt_tokens": 4}))
    first, second = log.steps
    assert first.other_ms >= 20.0 - 6.0
    assert (first.propose_ms, first.score_ms, first.verify_ms) == (1.0, 2.0, 3.0)
    assert second.other_ms < first.other_ms
    assert [entry.is_decode for entry in log.steps] == [True, False]
