"""What a row of expected tokens must promise."""

from __future__ import annotations

import random

import pytest

from specdec.adaptive.row_costs import RowCosts


def measured(num_sequences: int, plain_s: float, row_s: float) -> RowCosts:
    costs, source = RowCosts(), random.Random(1)
    for _ in range(400):
        num_nodes = source.randrange(4) * num_sequences
        costs.observe(num_sequences, num_nodes, plain_s + row_s * num_nodes)
    return costs


def test_a_row_must_pay_for_itself() -> None:
    assert measured(1, 0.010, 0.002).least_chance(1) == pytest.approx(0.25, rel=0.3)
    assert measured(8, 0.020, 0.001).least_chance(8) == pytest.approx(0.5, rel=0.3)


def test_some_rows_are_tried_however_dear() -> None:
    assert measured(64, 0.064, 0.002).least_chance(64) == 0.9
    assert RowCosts().least_chance(1) == 0.9


def test_batch_sizes_are_measured_apart() -> None:
    assert measured(8, 0.020, 0.001).least_chance(64) == 0.9
