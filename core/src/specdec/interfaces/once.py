"""Work that is done once, such as compiling and recording: the durations of steps and of proposers leave it out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class _Once(threading.local):
    seconds = 0.0
    """Seconds that this thread has spent on it."""


ONCE = _Once()
"""The calling thread's count; backends add to it."""


@contextmanager
def done_once() -> Iterator[None]:
    """Count the `with` block as work that is done once."""
    started = perf_counter() - ONCE.seconds
    try:
        yield
    finally:
        ONCE.seconds += perf_counter() - ONCE.seconds - started
