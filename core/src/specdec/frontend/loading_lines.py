"""Says every few seconds that a model is still being loaded: imports, conversions and disks may take long."""

from __future__ import annotations

import logging
from collections.abc import Iterator
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
    is_done, began = Event(), monotonic()

    def run() -> None:
        while not is_done.wait(LINE_EVERY_S):
            logger.warning("still loading %s, after %.0f s", name, monotonic() - began)

    thread = Thread(target=run, name="specdec-loading", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
