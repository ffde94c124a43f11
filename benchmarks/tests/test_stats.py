"""Bounds against the binomial distribution and against simulation."""

from __future__ import annotations

import random

import pytest
from common.stats import coverage, paired_ratio


def test_nine_pairs_take_the_second_from_each_end() -> None:
    found = paired_ratio([float(value) for value in (5, 1, 9, 3, 7, 2, 8, 4, 6)], [1.0] * 9)
    assert (found.median, found.low, found.high) == (5.0, 2.0, 8.0)
    assert found.coverage == pytest.approx(1 - 2 * 10 / 512)


@pytest.mark.parametrize(("count", "enough"), [(5, False), (6, True)])
def test_six_pairs_are_needed_for_95_percent(count: int, enough: bool) -> None:
    assert (paired_ratio([1.0] * count, [1.0] * count).coverage >= 0.95) is enough


def test_one_pair_is_its_own_bounds() -> None:
    found = paired_ratio([3.0], [2.0])
    assert (found.median, found.low, found.high, found.coverage) == (1.5, 1.5, 1.5, 0.0)


def test_bounds_enclose_the_median_as_often_as_they_say() -> None:
    rng = random.Random(0)
    trials, count, inside = 2000, 11, 0
    for _ in range(trials):
        found = paired_ratio([rng.lognormvariate(0.0, 1.0) for _ in range(count)], [1.0] * count)
        inside += found.low <= 1.0 <= found.high
    assert inside / trials == pytest.approx(coverage(count, 2), abs=0.012)  # three standard errors are 0.0072


def test_a_common_disturbance_cancels() -> None:
    disturbance = [1.0, 5.0, 2.0, 9.0, 3.0, 1.0, 4.0]
    found = paired_ratio([3.0 * d for d in disturbance], [2.0 * d for d in disturbance])
    assert found.low == found.high == pytest.approx(1.5)


def test_nothing_to_pair() -> None:
    with pytest.raises(ValueError, match="at least one"):
        paired_ratio([], [])
