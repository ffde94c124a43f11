"""Goals of a visit. The limits hold for an 8B model in bfloat16 on one GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from device.point import Point

MAX_STEP_OVER_BOUND = 1.25
MAX_OVERHEAD_MS = 0.31
MAX_ROWS, MAX_PASS_OVER_ONE_ROW = 64, 1.15
MAX_GAIN_ROWS, MIN_GAIN = 128, 1.0
MAX_DRAFT_OVER_BOUND = 2.0
SEEN_ON = "NVIDIA H200"
MAX_SEEN_MS = 4.66
"""A plain step at batch 1 on that device, launched ahead, as `results/device_h200.json` has it."""


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
    def line(self) -> str:
        """The goal, what was measured, and the verdict, in one line."""
        verdict = {True: "met", False: "NOT MET", None: "not measured"}[self.is_met]
        measured = "" if self.value is None else f", measured {self.value:.3g} ({self.where})"
        return f"{verdict:12} {self.name}: at {'most' if self.is_upper else 'least'} {self.limit:g}{measured}"

    def as_dict(self) -> dict[str, object]:
        """Return what is kept in a result."""
        return {**asdict(self), "is_met": self.is_met}


def evaluate(points: Sequence[Point], device: str) -> list[Goal]:
    """Compare measurements with all goals.

    Args:
        points: what was measured.
        device: name of the device.
    """
    plain = {(point.batch_size, point.context): point for point in points if point.name == "plain"}
    alone = [point for (batch_size, _), point in plain.items() if batch_size == 1]
    shortest = min(alone, key=lambda point: point.context, default=None)
    drafts = [point for point in points if point.k]
    goals = [
        _worst(
            "plain step at batch 1 over reading its bytes", MAX_STEP_OVER_BOUND, True,
            ((point.step_ms / point.bound_ms, point) for point in alone if point.bound_ms is not None),
        ),
        _worst(
            "verify + commit + host at batch 1, ms", MAX_OVERHEAD_MS, True,
            ((point.rest_ms, point) for point in alone),
        ),
        _worst(
            f"pass of up to {MAX_ROWS} rows over one of one row, by bytes", MAX_PASS_OVER_ONE_ROW, True,
            (
                (point.forward_ms / shortest.forward_ms / (point.num_bytes / shortest.num_bytes), point)
                for point in points
                if shortest is not None and point.name != "deterministic" and 1 < point.num_rows <= MAX_ROWS
            ),
        ),
        _worst(
            f"tokens/s with drafts over without, up to {MAX_GAIN_ROWS} rows", MIN_GAIN, False,
            (
                (point.tokens_per_s / plain[key].tokens_per_s, point)
                for point in drafts
                if point.num_rows <= MAX_GAIN_ROWS and (key := (point.batch_size, point.context)) in plain
            ),
        ),
        _worst(
            "drafting of a head at batch 1 over reading it", MAX_DRAFT_OVER_BOUND, True,
            (
                ((point.rest_ms - shortest.rest_ms) / point.head_bound_ms, point)
                for point in drafts
                if shortest is not None and point.batch_size == 1 and point.head_bound_ms
            ),
        ),
    ]  # fmt: skip
    if device == SEEN_ON:
        found = [] if shortest is None else [(shortest.step_ms, shortest)]
        goals.append(_worst("plain step at batch 1, ms, as seen before", MAX_SEEN_MS, True, found))
    return goals


def _worst(name: str, limit: float, is_upper: bool, given: Iterable[tuple[float, Point]]) -> Goal:
    found = list(given)
    if not found:
        return Goal(name, limit, is_upper, None)
    choose = max if is_upper else min
    value, point = choose(found, key=lambda pair: pair[0])
    return Goal(name, limit, is_upper, value, point.where)
