"""What `get_metrics` returns: numbers over an engine's lifetime."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["BOUNDS_S", "Counter", "Gauge", "Histogram", "Metric", "PerProposer", "Vector"]

BOUNDS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""Upper bounds of the buckets of times, in seconds; one more bucket holds all longer times."""


@dataclass(frozen=True)
class Counter:
    """One number that only increases."""

    name: str
    value: int | float


@dataclass(frozen=True)
class Gauge:
    """One number that increases and decreases."""

    name: str
    value: int | float


@dataclass(frozen=True)
class Vector:
    """One number per draft position."""

    name: str
    values: list[int]


@dataclass
class Histogram:
    """Counts of times, in seconds, in buckets with upper bounds."""

    name: str
    bounds: tuple[float, ...] = BOUNDS_S
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    """Per bucket, one more than there are bounds; not cumulative."""
    total: float = 0.0
    """Sum of the times."""


@dataclass(frozen=True)
class PerProposer:
    """One number that only increases per proposer: the members of one that calls others, else itself."""

    name: str
    values: dict[str, int]


Metric = Counter | Gauge | Vector | PerProposer | Histogram
