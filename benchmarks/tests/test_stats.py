"""Ratios of paired timings."""

from __future__ import annotations

import pytest
from common.stats import paired_ratio


def test_nine_pairs_take_the_second_from_each_end() -> None:
    found = paired_ratio([float(value) for value in (5, 1, 9, 3, 7, 2, 8, 4, 6)], [1.0] * 9)
    assert (found.median, found.low, found.high) == (5.0, 2.0, 8.0)


def test_six_pairs_are_needed_for_95_percent() -> None:
    assert "fewer" in str(paired_ratio([1.0] * 5, [1.0] * 5))
    assert "fewer" not in str(paired_ratio([1.0] * 6, [1.0] * 6))


def test_a_common_disturbance_cancels() -> None:
    disturbance = [1.0, 5.0, 2.0, 9.0, 3.0, 1.0, 4.0]
    found = paired_ratio([3.0 * d for d in disturbance], [2.0 * d for d in disturbance])
    assert found.low == found.high == pytest.approx(1.5)


def test_nothing_to_pair() -> None:
    with pytest.raises(ValueError, match="at least one"):
        paired_ratio([], [])
