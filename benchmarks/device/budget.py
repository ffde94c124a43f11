"""Time budget for a part of a run."""

from __future__ import annotations

from time import perf_counter


class Budget:
    """A time budget that starts when it is created.

    Args:
        seconds: its length.
    """

    def __init__(self, seconds: float) -> None:
        self._end = perf_counter() + seconds

    @property
    def is_spent(self) -> bool:
        """Whether the budget is used up."""
        return perf_counter() >= self._end
