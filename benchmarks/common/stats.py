"""Paired statistics that assume nothing about the distribution of timings."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

CONFIDENCE = 0.95


@dataclass(frozen=True)
class PairedRatio:
    """Median of paired ratios with bounds."""

    median: float
    low: float
    high: float
    coverage: float
    """Probability that the bounds enclose the true median; below 0.95 only with fewer than 6 pairs."""
    num_pairs: int

    def __str__(self) -> str:
        short = f" ({self.coverage:.0%} bounds)" if self.coverage < CONFIDENCE else ""
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]{short}"


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> PairedRatio:
    """Median of `numerators[i] / denominators[i]` with the bounds of the sign test.

    The r-th smallest and the r-th largest ratio enclose the median with probability
    `1 - 2 P(Bin(n, 1/2) < r)`, whatever the distribution. This uses the largest r that keeps 95 %, and no random
    numbers.

    Raises:
        ValueError: without pairs, or with sequences of different lengths.
    """
    if not numerators:
        raise ValueError("paired_ratio needs at least one pair")
    ratios = sorted(a / b for a, b in zip(numerators, denominators, strict=True))
    count = len(ratios)
    rank = 1
    while rank < (count + 1) // 2 and coverage(count, rank + 1) >= CONFIDENCE:
        rank += 1
    return PairedRatio(
        median=statistics.median(ratios),
        low=ratios[rank - 1],
        high=ratios[count - rank],
        coverage=coverage(count, rank),
        num_pairs=count,
    )


def coverage(count: int, rank: int) -> float:
    """Probability that the `rank`-th smallest and largest of `count` values enclose the median."""
    return 1.0 - 2.0 * sum(comb(count, below) for below in range(rank)) / 2.0**count
