"""Goals of a run. The limits hold for an 8B model in bfloat16 on one GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from device.point import Point

MAX_STEP_OVER_BOUND = 1.25
MAX_OVERHEAD_MS = 0.31
MAX_ROWS, MAX_SCORE_OVER_ONE_ROW = 64, 1.15
MAX_FLAT_ROWS, MIN_GAIN = 128, 1.0
MIN_OVER_ASSISTED = 2.0
_FLATNESS = f"scoring up to {MAX_ROWS} rows over scoring one"


@dataclass(frozen=True)
class Goal:
    """A measured number and its limit."""

    name: str
    limit: float
    is_upper: bool
    """True if the limit is a maximum, False if it is a minimum."""
    value: float | None
    """The worst measured value; None if nothing was measured."""
    where: str = ""
    """The measurement it comes from."""

    @property
    def is_met(self) -> bool | None:
        """Whether the limit is met; None if nothing was measured."""
        if self.value is None:
            return None
        return self.value <= self.limit if self.is_upper else self.value >= self.limit

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return {True: "met", False: "NOT MET", None: "not measured"}[self.is_met]

    def as_dict(self) -> dict[str, object]:
        """Return what is kept in a result."""
        return {**asdict(self), "is_met": self.is_met}


def evaluate(points: Sequence[Point], over_assisted: float | None) -> list[Goal]:
    """Compare measurements with all goals.

    Args:
        points: part 1.
        over_assisted: part 2: ratio to assisted generation; None if it was not measured or the tokens differed.
    """
    return [
        step_over_bound(points),
        overhead(points),
        flatness(points),
        gain(points),
        Goal("tokens/s over assisted generation", MIN_OVER_ASSISTED, False, over_assisted, "batch 1"),
    ]


def step_over_bound(points: Sequence[Point]) -> Goal:
    """Ratio of a step without speculation at batch 1 to the time of reading its bytes."""
    found = [
        (point.step_ms / point.bound_ms, point)
        for point in points
        if (point.batch_size, point.k) == (1, 0) and point.bound_ms is not None
    ]
    return _worst("step without speculation over its bandwidth bound", MAX_STEP_OVER_BOUND, True, found)


def overhead(points: Sequence[Point]) -> Goal:
    """Time of a step at batch 1 minus proposing and the bare forward pass."""
    found = [(point.overhead_ms, point) for point in points if point.batch_size == 1]
    return _worst("verify + commit + host at batch 1, ms", MAX_OVERHEAD_MS, True, found)


def flatness(points: Sequence[Point]) -> Goal:
    """Ratio of scoring up to 64 rows to scoring one, per byte read, since more requests read more keys and values."""
    one = _one_row(points)
    if one is None:
        return _worst(_FLATNESS, MAX_SCORE_OVER_ONE_ROW, True, [])
    found = [
        (point.split.score_ms / one.split.score_ms / (point.num_bytes / one.num_bytes), point)
        for point in points
        if 1 < point.num_rows <= MAX_ROWS
    ]
    return _worst(_FLATNESS, MAX_SCORE_OVER_ONE_ROW, True, found)


def gain(points: Sequence[Point]) -> Goal:
    """Ratio of tokens per second with and without speculation, at the same batch size, up to 128 rows."""
    plain = {point.batch_size: point.tokens_per_s for point in points if point.k == 0}
    found = [
        (point.tokens_per_s / plain[point.batch_size], point)
        for point in points
        if point.k > 0 and point.num_rows <= MAX_FLAT_ROWS and point.batch_size in plain
    ]
    return _worst(
        f"tokens/s with speculation over without, up to {MAX_FLAT_ROWS} rows", MIN_GAIN, False, found
    )


def _one_row(points: Iterable[Point]) -> Point | None:
    return next((point for point in points if point.num_rows == 1), None)


def _worst(name: str, limit: float, is_upper: bool, found: list[tuple[float, Point]]) -> Goal:
    if not found:
        return Goal(name, limit, is_upper, None)
    choose = max if is_upper else min
    value, point = choose(found, key=lambda pair: pair[0])
    return Goal(name, limit, is_upper, value, f"batch {point.batch_size}, k = {point.k}")
