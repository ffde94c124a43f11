"""Acceptance rates from a mean length or a mean rate."""

from __future__ import annotations

from itertools import pairwise

import pytest

from specdec_runtime.samplers.acceptance_rates import rates_of_length, rates_of_mean
from specdec_runtime.samplers.synthetic import SyntheticConfig


@pytest.mark.parametrize(
    ("length", "rates"),
    [
        (1.0, (0.0, 0.0, 0.0)),
        (1.25, (0.25, 0.0, 0.0)),
        (2.0, (1.0, 0.0, 0.0)),
        (2.5, (1.0, 0.5, 0.0)),
        (4.0, (1.0, 1.0, 1.0)),
    ],
)
def test_a_length_becomes_the_rates_that_vary_least(length: float, rates: tuple[float, ...]) -> None:
    assert rates_of_length(length, 3) == rates
    assert 1 + sum(rates) == length
    assert SyntheticConfig(num_speculative_tokens=3, synthetic_acceptance_length=length).rates == rates


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_a_mean_rate_is_met_by_falling_rates(rate: float, k: int) -> None:
    rates = rates_of_mean(rate, k)
    assert sum(rates) / k == pytest.approx(rate, abs=1e-12)
    assert all(later == pytest.approx(rates[0] * earlier) for earlier, later in pairwise(rates))
