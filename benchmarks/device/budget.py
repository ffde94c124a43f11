"""How long a part of a run may take."""

from __future__ import annotations

from time import perf_counter


class Budget:
    """A span of time from now on.

    Args:
        seconds: how long.
    """

    def __init__(self, seconds: float) -> None:
        self._end = perf_counter() + seconds

    @property
    def is_spent(self) -> bool:
        """Whether the time is over."""
        return perf_counter() >= self._end
