"""Stops a run on Ctrl-C or SIGTERM between two steps, so that its progress is kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """A run was stopped and has saved its progress; the message says where."""


class Interruption:
    """Records the first Ctrl-C or SIGTERM; a second one ends the process as usual.

    Use as a context manager. Outside the main thread it installs no handlers and records nothing.
    """

    def __init__(self) -> None:
        self.is_requested = False
        """Whether the run has been asked to stop."""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_requested = True
        self._give_back()

    def _give_back(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)


def never() -> bool:
    """Return False: no stop was requested."""
    return False


IsInterrupted = Callable[[], bool]
"""Returns whether a stop was requested."""
