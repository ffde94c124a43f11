"""Time that steps and proposers are measured by: it stands still during work that is done once, such as compiling."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class _OneTimeWork(threading.local):
    seconds = 0.0
    """Seconds that this thread has spent on it."""


_ONE_TIME_WORK = _OneTimeWork()


def step_time() -> float:
    """Return the calling thread's time in seconds, without what `one_time_work` has counted."""
    return perf_counter() - _ONE_TIME_WORK.seconds


@contextmanager
def one_time_work() -> Iterator[None]:
    """Count the `with` block as work that is done once."""
    started = step_time()
    try:
        yield
    finally:
        _ONE_TIME_WORK.seconds += step_time() - started


def count_one_time_work(seconds: float) -> None:
    """Count seconds that have passed as work that is done once."""
    _ONE_TIME_WORK.seconds += seconds
