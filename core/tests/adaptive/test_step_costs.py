"""Durations by count, whatever else the machine does."""

from __future__ import annotations

from itertools import cycle

import pytest

from specdec.adaptive.step_costs import _MOST_COUNTS, ByCount, StepCosts, _index, _least


def test_places_of_counts_are_in_order() -> None:
    assert [_index(count) for count in range(20)] == [*range(16), 16, 16, 17, 17]
    assert all(_least(_index(n)) <= n < _least(_index(n) + 1) for n in range(_least(_MOST_COUNTS - 1)))


def test_seconds_between_and_beyond_measured_counts_are_on_lines() -> None:
    measured = ByCount()
    assert measured.at(3) == 0.0
    measured.observe(2, 1.0)
    assert measured.at(4) == pytest.approx(1.08)
    assert measured.at(0) == pytest.approx(0.92)
    for seconds in (3.0, 1000.0, 3.0):  # one outlier does not matter
        measured.observe(6, seconds)
    assert [measured.at(n) for n in (4, 6, 8)] == pytest.approx([2.0, 3.0, 4.0])
    measured.observe(10, 2.0)  # never less than fewer took: the mean of both, by how often they were measured
    assert measured.at(6) == measured.at(10) == pytest.approx((3 * 3.0 + 2.0) / 4)


def test_what_is_not_done_while_the_machine_is_slow_counts_as_slow_too() -> None:
    costs = StepCosts()
    noise = cycle([0.9, 1.2, 1.0, 0.95, 1.1])
    for slowness in (1.0, 1.0, 1.0, 3.0, 3.0, 3.0):
        for _ in range(50):
            costs.observe_step_without_draft(1, 4, slowness * 2.0 * next(noise))
    for _ in range(5):
        costs.observe_step_without_draft(1, 0, 3.0)  # measured in the slow time alone
        costs.observe_draft(0, 2, 1.5)
    assert costs.rest(1).at(0) == pytest.approx(0.5 * costs.rest(1).at(4), rel=0.15)
    assert costs.drafting(0).at(2) == pytest.approx(0.5 * costs.rest(1).at(0), rel=0.15)
