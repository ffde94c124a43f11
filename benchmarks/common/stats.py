"""Ratios of paired timings, with the bounds of `specdec_cli.bench.statistics`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec_cli.bench.speedup import MIN_ROUNDS
from specdec_cli.bench.statistics import median_with_bounds


@dataclass(frozen=True)
class PairedRatio:
    """Median of paired ratios with bounds."""

    median: float
    low: float
    high: float
    num_pairs: int

    def __str__(self) -> str:
        short = " (fewer than 95% bounds)" if self.num_pairs < MIN_ROUNDS else ""
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]{short}"


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> PairedRatio:
    """Return the median of `numerators[i] / denominators[i]` with its bounds.

    Raises:
        ValueError: without pairs, or with sequences of different lengths.
    """
    if not numerators:
        raise ValueError("paired_ratio needs at least one pair")
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    return PairedRatio(*median_with_bounds(ratios), num_pairs=len(ratios))
