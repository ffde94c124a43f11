"""Progress of a command: a bar on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TextIO

from specdec.frontend import regularly

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_EVERY_S = 4.0
"""Seconds between two progress lines if there is no terminal, whatever happens; more in tasks of many minutes."""
_MORE_S, _MOST = 600.0, 8.0
"""From when on there are more, in proportion to the time; and how many times as many at most."""


class Steps:
    """Counts the steps of a task and shows the count.

    Args:
        description: description of the task.
        total: its number of steps.
        display: bar on a terminal, or None.
    """

    def __init__(self, description: str, total: float, display: Progress | None) -> None:
        self._description = description
        self._total = total
        self.done = 0.0
        """Number of finished steps."""
        self._display = display
        self._task = None if display is None else display.add_task(description, total=total)
        self._note = ""

    def tell(self, what: str | None) -> None:
        """Say what goes on inside the step, in the same line; None: nothing in particular."""
        self._note = "" if what is None else f" ({what})"
        if self._display is not None and self._task is not None:
            self._display.update(self._task, description=self._description + self._note)

    def advance(self, count: float = 1) -> None:
        """Count finished steps."""
        self.done += count
        if self._display is not None and self._task is not None:
            self._display.advance(self._task, count)

    @property
    def line(self) -> str:
        """Description and count."""
        return f"{self._description}{self._note}: {self.done:g} of {self._total:g} steps"

    def expect(self, total: float) -> None:
        """Change the total number of steps."""
        self._total = total
        if self._display is not None and self._task is not None:
            self._display.update(self._task, total=total)


_shown: Steps | None = None
"""What is shown now: there is one line of progress."""


@contextmanager
def progress(description: str, total: float) -> Iterator[Steps]:
    """Show progress on the standard error stream: a bar on a terminal, a line every `LINE_EVERY_S` seconds elsewhere.

    Inside another `progress` it is told in that one's line.

    Args:
        description: description of the task.
        total: its number of steps.
    """
    global _shown
    if (outer := _shown) is not None:
        outer.tell(description)
        try:
            yield Steps(description, total, None)
        finally:
            outer.tell(None)
        return
    with _no_lines_of_core(), _line_of(description, total) as _shown:
        try:
            yield _shown
        finally:
            _shown = None


@contextmanager
def _line_of(description: str, total: float) -> Iterator[Steps]:
    if not sys.stderr.isatty():
        steps = Steps(description, total, None)
        with _regular_lines(lambda: steps.line):
            yield steps
        return
    from rich.console import Console
    from rich.progress import Progress

    # The remaining time is estimated over the last ten minutes, because one step may take long.
    with Progress(console=Console(stderr=True), transient=True, speed_estimate_period=600) as display:
        yield Steps(description, total, display)


@contextmanager
def loading(model: str) -> Iterator[None]:
    """Show that a model is being loaded: on a terminal at once, elsewhere by a line every `LINE_EVERY_S` seconds."""
    shown: AbstractContextManager[object]
    if sys.stderr.isatty():
        from rich.console import Console

        shown = Console(stderr=True).status(f"loading {model}")
    else:
        shown = _regular_lines(lambda: f"loading {model}")
    with _no_lines_of_core(), shown:
        yield


@contextmanager
def _no_lines_of_core() -> Iterator[None]:
    """Silence what `LLM` says while it loads, since progress is shown."""
    lines = logging.getLogger("specdec.loading")
    before, lines.disabled = lines.disabled, True
    try:
        yield
    finally:
        lines.disabled = before


@contextmanager
def _regular_lines(line: Callable[[], str]) -> Iterator[None]:
    """Print a line with the elapsed time every `LINE_EVERY_S` seconds, from a thread of its own."""
    with (
        _standard_error() as stream,
        regularly(
            lambda seconds: print(f"specdec: {line()} after {seconds:.0f} s", file=stream, flush=True),
            lambda seconds: LINE_EVERY_S * min(max(1.0, seconds / _MORE_S), _MOST),
        ),
    ):
        yield


@contextmanager
def _standard_error() -> Iterator[TextIO]:
    """Yield the stream that now is the standard error stream, also while something redirects that."""
    try:
        copy = os.dup(sys.stderr.fileno())
    except (OSError, ValueError):  # not a file
        yield sys.stderr
        return
    with open(copy, "w", encoding="utf-8") as stream:
        yield stream
