"""Bounds of a median, and how repetitive a text is."""

from __future__ import annotations

from itertools import product

import pytest

from specdec_cli.bench.statistics import distinct_ratio, median_with_bounds


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.5], (1.5, 1.5, 1.5)),
        ([2.0, 1.0], (1.5, 1.0, 2.0)),
        ([3.0, 1.0, 2.0], (2.0, 1.0, 3.0)),
        ([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], (3.5, 1.0, 6.0)),
        ([float(n) for n in range(1, 10)], (5.0, 2.0, 8.0)),
        ([float(n) for n in range(1, 21)], (10.5, 6.0, 15.0)),
    ],
)
def test_bounds_are_order_statistics(values: list[float], expected: tuple[float, float, float]) -> None:
    assert median_with_bounds(values) == expected


@pytest.mark.parametrize("size", [6, 8, 9, 12])
def test_bounds_hold_at_95_percent_and_are_the_narrowest_that_do(size: int) -> None:
    _, low, high = median_with_bounds([float(n) for n in range(size)])

    def coverage(rank: int) -> float:
        """Share of all patterns of values below and above the median that leave it between these two."""
        inside = sum(rank <= sum(below) <= size - rank for below in product((0, 1), repeat=size))
        return inside / 2**size

    rank = int(low) + 1
    assert high == size - rank
    assert coverage(rank) >= 0.95
    assert coverage(rank + 1) < 0.95


def test_distinct_ratio_by_hand() -> None:
    assert distinct_ratio([[1, 2, 3, 4, 5]]) == 1.0
    assert distinct_ratio([[1, 1, 1, 1, 1, 1]]) == pytest.approx(1 / 3)
    assert distinct_ratio([[1, 2, 3, 4], [1, 2, 3, 4], [9, 9, 9, 9, 9]]) == pytest.approx(2 / 4)


def test_texts_too_short_for_a_gram_do_not_repeat_themselves() -> None:
    assert distinct_ratio([[1, 2, 3], []]) == 1.0
    assert distinct_ratio([]) == 1.0
