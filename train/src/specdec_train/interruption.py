"""Stopping a run on Ctrl-C or SIGTERM between two steps, so that what was done is kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """A run was asked to stop, and has kept what it did; the message says where."""


class Interruption:
    """Notes the first Ctrl-C or SIGTERM instead of dying of it; a second one ends the process as usual.

    Use as a context manager. Outside the main thread signals are not its own, and it notes nothing.
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
    """Say that nobody asked to stop."""
    return False


IsInterrupted = Callable[[], bool]
"""Says whether a run has been asked to stop."""
