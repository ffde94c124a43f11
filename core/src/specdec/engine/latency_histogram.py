"""A histogram of times."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""Upper bounds of buckets, in seconds; one more bucket holds all longer times."""


class LatencyHistogram:
    """Numbers of times in fixed buckets."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count a time."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total += seconds
