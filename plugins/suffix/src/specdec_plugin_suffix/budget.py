"""How long the trees may take in one step."""

from __future__ import annotations

from time import perf_counter, thread_time


class TimeBudget:
    """Processor time of the calling thread, from `begin` on.

    Time in which the thread waited for a processor is nobody's fault and does not count, so drafts do not depend on what
    else the machine does. The wall clock is read first because it costs a tenth.

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
        """Return whether the step has used its time."""
        if perf_counter() < self._wall_end:
            return False
        left = self._processor_end - thread_time()
        self._wall_end = perf_counter() + left
        return left <= 0.0
