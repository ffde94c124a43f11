"""Progress of a command: a bar on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_EVERY_S = 15.0
"""Seconds between two progress lines if there is no terminal."""


class Steps:
    """Counts the steps of a task and shows the count.

    Args:
        description: description of the task.
        total: its number of steps.
        display: bar on a terminal; None writes lines to the standard error stream.
    """

    def __init__(self, description: str, total: float, display: Progress | None) -> None:
        self._description = description
        self._total = total
        self._done = 0.0
        self._display = display
        self._task = None if display is None else display.add_task(description, total=total)
        self._started = self._told = perf_counter()

    def advance(self, count: float = 1) -> None:
        """Count finished steps."""
        self._done += count
        if self._display is not None and self._task is not None:
            self._display.advance(self._task, count)
            return
        now = perf_counter()
        if now - self._told >= LINE_EVERY_S:
            self._told = now
            share = f"{self._done:g} of {self._total:g} steps after {now - self._started:.0f} s"
            print(f"specdec: {self._description}: {share}", file=sys.stderr, flush=True)

    def expect(self, total: float) -> None:
        """Change the total number of steps."""
        self._total = total
        if self._display is not None and self._task is not None:
            self._display.update(self._task, total=total)


@contextmanager
def progress(description: str, total: float) -> Iterator[Steps]:
    """Show progress on the standard error stream: a bar on a terminal, a line every `LINE_EVERY_S` seconds elsewhere.

    Args:
        description: description of the task.
        total: its number of steps.
    """
    if not sys.stderr.isatty():
        yield Steps(description, total, None)
        return
    from rich.console import Console
    from rich.progress import Progress

    # The remaining time is estimated over the last ten minutes, because one step may take long.
    with Progress(console=Console(stderr=True), transient=True, speed_estimate_period=600) as display:
        yield Steps(description, total, display)


@contextmanager
def loading(model: str) -> Iterator[None]:
    """Show on a terminal that a model is being loaded; show nothing elsewhere."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"loading {model}"):
        yield
