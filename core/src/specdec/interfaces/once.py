"""Time that steps and proposers are measured by: it stands still during work that is done once, such as compiling."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class _Once(threading.local):
    seconds = 0.0
    """Seconds that this thread has spent on it."""


_ONCE = _Once()


def step_time() -> float:
    """Return the calling thread's time in seconds, without what `done_once` has counted."""
    return perf_counter() - _ONCE.seconds


@contextmanager
def done_once() -> Iterator[None]:
    """Count the `with` block as work that is done once."""
    started = step_time()
    try:
        yield
    finally:
        _ONCE.seconds += step_time() - started


def count_once(seconds: float) -> None:
    """Count seconds that have passed as work that is done once."""
    _ONCE.seconds += seconds
