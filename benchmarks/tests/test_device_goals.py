"""Verdicts of goals follow the measured numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from device.goal import SEEN_ON, Goal, evaluate
from device.point import Point


def point(
    batch_size: int, k: int, tokens_per_s: float, name: str = "plain", head_bound_ms: float = 0.0
) -> Point:
    return Point(
        name=name, batch_size=batch_size, context=128, k=k, prompts_s=0.1, step_ms=5.0, forward_ms=4.75,
        tokens_per_s=tokens_per_s, mean_acceptance_length=1.0, num_bytes=15e9, head_bytes=0.0, bound_ms=4.5,
        head_bound_ms=head_bound_ms,
    )  # fmt: skip


GOOD = [
    point(1, 0, 200.0),
    replace(point(1, 3, 500.0, "eagle3", 0.4), step_ms=5.7),
    point(64, 0, 9000.0),
    point(64, 1, 9900.0, "ngram"),
]
NUM_GOALS = 5


def goal(number: int, points: list[Point]) -> Goal:
    return evaluate(points, "")[number]


def test_good_numbers_meet_all_goals() -> None:
    goals = evaluate(GOOD, "")
    assert [found.is_met for found in goals] == [True] * NUM_GOALS
    assert [found.value for found in goals] == pytest.approx([5 / 4.5, 0.25, 1.0, 1.1, 0.7 / 0.4])
    assert [found.where for found in goals] == [
        "plain, batch 1, context 128", "plain, batch 1, context 128", "eagle3, batch 1, context 128, k = 3",
        "ngram, batch 64, context 128, k = 1", "eagle3, batch 1, context 128, k = 3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "place", "changes"),
    [
        (0, 0, {"step_ms": 5.04, "bound_ms": 4.0}),
        (1, 0, {"forward_ms": 4.6}),
        (2, 2, {"forward_ms": 5.6}),
        (3, 3, {"tokens_per_s": 8900.0}),
        (4, 1, {"step_ms": 5.9}),
    ],
)
def test_one_bad_number_misses_one_goal(number: int, place: int, changes: dict[str, float]) -> None:
    bad = [*GOOD]
    bad[place] = replace(bad[place], **changes)  # type: ignore[arg-type]  # all of them are numbers
    assert [found.is_met for found in evaluate(bad, "")] == [index != number for index in range(NUM_GOALS)]
    found = goal(number, bad)
    assert found.where == bad[place].where
    assert found.line.startswith("NOT MET")
    assert bad[place].where in found.line


def test_limits_count_as_kept() -> None:
    assert Goal("", 1.25, True, 1.25).is_met
    assert Goal("", 1.0, False, 1.0).is_met


def test_more_keys_and_values_are_no_fault_of_a_pass() -> None:
    more = replace(point(64, 0, 9000.0), num_bytes=18e9, forward_ms=5.7)
    assert goal(2, [GOOD[0], more]).value == pytest.approx(1.0)
    assert goal(2, [GOOD[0], replace(more, num_bytes=15e9)]).is_met is False
    assert goal(2, [GOOD[0], replace(more, num_bytes=15e9, name="deterministic")]).value is None


def test_wide_batches_and_those_without_a_baseline_are_left_out() -> None:
    wide, alone = point(64, 2, 1.0, "ngram"), point(2, 4, 1.0, "ngram")
    assert goal(3, [*GOOD, wide, alone]).is_met
    assert goal(2, [*GOOD, replace(wide, forward_ms=99.0)]).is_met


def test_on_the_device_of_earlier_runs_steps_are_held_against_theirs() -> None:
    for step_ms, is_met in ((4.6, True), (4.7, False)):
        assert evaluate([replace(GOOD[0], step_ms=step_ms)], SEEN_ON)[-1].is_met is is_met


def test_without_numbers_nothing_is_claimed() -> None:
    assert [found.is_met for found in evaluate([], SEEN_ON)] == [None] * (NUM_GOALS + 1)
    assert goal(0, [replace(GOOD[0], bound_ms=None)]).line.startswith("not measured")


def test_a_point_is_kept_whole() -> None:
    assert Point.from_dict(GOOD[1].as_dict()) == GOOD[1]
    assert GOOD[1].prompt_tokens_per_s == pytest.approx(1280)
