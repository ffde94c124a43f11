"""Cost of verification, from the rounds' milliseconds to the table."""

from __future__ import annotations

import pytest
from common.model import resolve_model
from safetensors.torch import load_file
from verified_rows import Round, Stepper, reduce, table


def test_ratios_are_formed_within_a_round() -> None:
    rounds = [
        Round(6.0 * slow, {1: 8.0 * slow, 4: 10.0 * slow}, {1: 7.0 * slow, 4: 9.0 * slow})
        for slow in (1.0, 3.0, 2.0)
    ]
    one, four = reduce(rounds)
    assert (one.num_rows, one.over_one.median, one.share_of_bound.median) == (1, 1.0, 0.75)
    assert (four.num_rows, four.step_ms, four.products_ms) == (4, 20.0, 18.0)
    assert (four.over_one.low, four.over_one.high) == (1.25, 1.25)
    assert four.share_of_bound.median == pytest.approx(0.6)
    assert "| 4 | 20.00 | 18.00 | 1.25" in table([one, four])


def test_a_step_has_as_many_rows_as_are_asked_for() -> None:
    model = resolve_model("zoo")
    stepper = Stepper(model, "float32", 4, list(range(10, 40)))
    weights = load_file(model / "model.safetensors")  # the head is the embedding
    assert stepper.num_bytes == 4 * sum(weight.numel() for weight in weights.values())
    assert stepper.step_ms(1, 3) > 0.0
    assert stepper.step_ms(4, 3) > 0.0
    assert stepper.products_ms(4, 3) > 0.0
