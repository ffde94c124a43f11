"""Says every few seconds that a model is still being loaded: imports, conversions and disks may take long."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from threading import Event, Thread
from time import monotonic

LINE_EVERY_S = 4.0
logger = logging.getLogger("specdec.loading")
"""Has a name of its own for programs that show progress themselves."""


@contextmanager
def loading_lines(model: object) -> Iterator[None]:
    """Log a line every `LINE_EVERY_S` seconds in the context, from a thread of its own.

    Args:
        model: its name or path, or the model itself.
    """
    name = fspath(model) if isinstance(model, str | PathLike) else type(model).__name__
    with regularly(
        lambda seconds: logger.warning("still loading %s, after %.0f s", name, seconds),
        lambda _: LINE_EVERY_S,
    ):
        yield


@contextmanager
def regularly(say: Callable[[float], object], wait: Callable[[float], float]) -> Iterator[None]:
    """Call `say` now and then in the context, from a thread of its own; it ends with the context.

    Args:
        say: given the seconds since the begin.
        wait: given the same, returns the seconds until the next call.
    """
    is_done, began = Event(), monotonic()

    def run() -> None:
        while not is_done.wait(wait(monotonic() - began)):
            say(monotonic() - began)

    thread = Thread(target=run, name="specdec-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
