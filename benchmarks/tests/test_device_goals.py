"""Verdicts of goals follow the measured numbers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from common.results import RESULTS
from device.goal import Goal, evaluate
from device.point import Point
from device.split import Split


def point(batch_size: int, k: int, tokens_per_s: float) -> Point:
    return Point(
        batch_size=batch_size,
        k=k,
        step_ms=5.0,
        tokens_per_s=tokens_per_s,
        mean_acceptance_length=1.0,
        split=Split(propose_ms=0.5, score_ms=4.4, verify_ms=0.1, other_ms=0.1),
        forward_ms=4.3,
        num_bytes=15e9,
        bound_ms=4.5,
    )


GOOD = [point(1, 0, 200.0), point(1, 8, 500.0), point(64, 0, 9000.0), point(64, 1, 9900.0)]


def goal(number: int, points: list[Point], over_assisted: float | None = 2.5) -> Goal:
    return evaluate(points, over_assisted)[number]


def test_good_numbers_meet_all_goals() -> None:
    goals = evaluate(GOOD, 2.5)
    assert [found.verdict for found in goals] == ["met"] * 5
    assert [found.value for found in goals] == pytest.approx([5 / 4.5, 0.3, 1.0, 1.1, 2.5])
    assert [found.where for found in goals] == [
        "batch 1, k = 0", "batch 1, k = 0", "batch 1, k = 8", "batch 64, k = 1", "batch 1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "place", "changes"),
    [
        (0, 0, {"step_ms": 5.7}),
        (1, 1, {"forward_ms": 4.2}),
        (2, 1, {"split": Split(0.5, 5.1, 0.1, 0.1), "forward_ms": 5.0}),
        (3, 3, {"tokens_per_s": 8900.0}),
    ],
)
def test_one_bad_number_misses_one_goal(number: int, place: int, changes: dict[str, object]) -> None:
    bad = [*GOOD]
    bad[place] = replace(bad[place], **changes)
    assert [found.is_met for found in evaluate(bad, 2.5)] == [index != number for index in range(5)]
    assert goal(number, bad).verdict == "NOT MET"
    worst = bad[place]
    assert goal(number, bad).where == f"batch {worst.batch_size}, k = {worst.k}"


def test_assisted_generation_by_its_ratio() -> None:
    assert [goal(4, GOOD, ratio).is_met for ratio in (1.9, 2.0, None)] == [False, True, None]


def test_limits_count_as_kept() -> None:
    assert Goal("", 1.25, True, 1.25).is_met
    assert Goal("", 1.0, False, 1.0).is_met


def test_more_keys_and_values_are_no_fault_of_scoring() -> None:
    more = replace(point(64, 0, 9000.0), num_bytes=18e9, split=Split(0.5, 5.2, 0.1, 0.1))
    assert goal(2, [GOOD[0], more]).value == pytest.approx(5.2 / 4.4 / 1.2)
    assert goal(2, [GOOD[0], replace(more, num_bytes=15e9)]).is_met is False


def test_wide_batches_and_those_without_a_baseline_are_left_out() -> None:
    wide, alone = point(64, 2, 1.0), point(2, 4, 1.0)
    assert goal(3, [*GOOD, wide, alone]).is_met
    assert goal(2, [*GOOD, replace(wide, split=Split(0.5, 99.0, 0.1, 0.1))]).is_met


def test_without_numbers_nothing_is_claimed() -> None:
    assert [found.is_met for found in evaluate([], None)] == [None] * 5
    assert goal(0, [replace(GOOD[0], bound_ms=None)]).verdict == "not measured"


def test_the_goals_of_a_committed_run_are_those_of_its_steps() -> None:
    content = json.loads((RESULTS / "device_h200.json").read_text(encoding="utf-8"))
    points = [
        Point(batch, k, step, speed, length, Split(propose, forward, verify, other), forward, bound, bound)
        for batch, k, step, forward, propose, verify, other, bound, speed, length in content["steps"]["rows"]
    ]
    for goal, kept in zip(evaluate(points, None), content["goals"], strict=True):
        assert (goal.name, goal.limit) == (kept["name"], kept["limit"])
        if kept["value"] is not None:  # of how flat scoring is the file has too little
            assert (kept["value"], kept["is_met"]) == (pytest.approx(goal.value, rel=1e-3), goal.is_met)
