"""Says every few seconds that numba is still compiling: a single function may take a minute on a busy machine."""

from __future__ import annotations

import logging
from threading import Event, Thread
from time import monotonic
from typing import Any

from numba.core import event

LINE_EVERY_S = 5.0
logger = logging.getLogger("specdec.compiled")


class _Active(event.Listener):
    """Counts the compilations that go on."""

    count = 0

    def on_start(self, _: Any) -> None:
        self.count += 1

    def on_end(self, _: Any) -> None:
        self.count -= 1


_active = _Active()
_register: Any = event.register  # numba is not annotated
_register("numba:compile", _active)
_thread: Thread | None = None
_has_more = False
"""Whether something began to compile since the last line."""


def report() -> None:
    """Log a line every `LINE_EVERY_S` seconds until nothing is compiled; called where something begins to be."""
    global _thread, _has_more
    _has_more = True
    if _thread is None or not _thread.is_alive():
        _thread = Thread(target=_run, name="specdec-compiling", daemon=True)
        _thread.start()


def _run() -> None:
    global _has_more
    began, never = monotonic(), Event()
    while not never.wait(LINE_EVERY_S) and (_active.count or _has_more):
        _has_more = False
        logger.warning("still compiling for this machine, after %.0f s", monotonic() - began)
