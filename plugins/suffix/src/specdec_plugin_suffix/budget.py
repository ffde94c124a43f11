"""Time budget of the trees in one step."""

from __future__ import annotations

from time import perf_counter, thread_time


class TimeBudget:
    """Limits the CPU time of the calling thread, counted from `begin`.

    Time in which the thread waits for a processor does not count, so drafts do not depend on other load on the machine.
    The wall clock is read first because reading it costs a tenth as much.

    Args:
        seconds: the budget of one step.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._wall_end = 0.0
        self._processor_end = 0.0

    def begin(self) -> None:
        """Start a step."""
        self._processor_end = thread_time() + self._seconds
        self._wall_end = perf_counter() + self._seconds

    def is_over(self) -> bool:
        """Return whether the step has used up its budget."""
        if perf_counter() < self._wall_end:
            return False
        left = self._processor_end - thread_time()
        self._wall_end = perf_counter() + left
        return left <= 0.0
