"""Pearson's chi-square test of whether counts follow a distribution, with a fixed false alarm rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

FALSE_ALARMS = 1e-6
"""Probability, over all seeds, that a test rejects a correct distribution; the kit's seeds are fixed."""
MIN_EXPECTED = 5.0
"""Cells with a smaller expected count are merged."""


@dataclass(frozen=True)
class Fit:
    """Result of the test."""

    statistic: float
    num_degrees: int
    impossible: tuple[int, ...]
    """Cells with probability 0 that were observed."""

    @property
    def p_value(self) -> float:
        """Probability that a correct distribution gives a statistic at least as large."""
        if self.impossible:
            return 0.0
        if self.num_degrees < 1:
            return 1.0
        half = torch.tensor([self.num_degrees / 2, self.statistic / 2], dtype=torch.float64)
        return float(torch.special.gammaincc(half[0], half[1]))


def fit(counts: torch.Tensor, expected: torch.Tensor) -> Fit:
    """Return how well counts fit the expected counts.

    For independent draws from different distributions, with `expected` their sum, the statistic is smaller on average than
    for equal distributions, so false alarms are even rarer.

    Args:
        counts: `[C]` observed count of each cell.
        expected: `[C]` expected count of each cell; both sums are equal.
    """
    counts, expected = counts.double(), expected.double()
    impossible = ((expected <= 0.0) & (counts > 0)).nonzero()[:, 0].tolist()
    is_large = expected >= MIN_EXPECTED
    rare_count, rare_expected = counts[~is_large].sum(), expected[~is_large].sum()
    counts, expected = counts[is_large], expected[is_large]
    if rare_expected >= MIN_EXPECTED or not len(expected):
        counts = torch.cat((counts, rare_count[None]))
        expected = torch.cat((expected, rare_expected[None]))
    elif rare_expected > 0:
        smallest = int(expected.argmin())
        counts[smallest] += rare_count
        expected[smallest] += rare_expected
    statistic = float(((counts - expected) ** 2 / expected.clamp_min(1e-300)).sum())
    return Fit(statistic, len(expected) - 1, tuple(impossible))


def excess(counts: npt.NDArray[np.integer], probs: npt.NDArray[np.floating]) -> float:
    """Return chi-square over ten standard deviations above its mean, `df + 10 * sqrt(2 * df)`: below 1 passes.

    This is for tests whose seeds are fixed; infinite if something impossible was observed.

    Args:
        counts: `[C]` observed count of each cell.
        probs: `[C]` probability of each cell.
    """
    result = fit(torch.as_tensor(counts), torch.as_tensor(probs) * int(counts.sum()))
    if result.impossible:
        return math.inf
    assert result.num_degrees > 1
    return result.statistic / (result.num_degrees + 10 * math.sqrt(2 * result.num_degrees))
