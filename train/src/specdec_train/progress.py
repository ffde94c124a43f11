"""Progress of a run: a bar on a terminal, a line now and then in a pipe."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class RunProgress:
    """Shows how far a run is; use as a context manager.

    Args:
        title: what is being trained.
        total: optimizer steps planned.
        console: where to write; standard error by default, so that standard output stays free for results.
    """

    def __init__(self, title: str, total: int, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stderr, soft_wrap=True)
        self._title = title
        self._total = total
        self._bar: Progress | None = None
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total} {task.fields[note]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._task = self._bar.add_task(title, total=total, note="")

    def update(self, step: int, note: str) -> None:
        """Move the bar to `step`; without a terminal nothing is written."""
        if self._bar is not None:
            self._bar.update(self._task, completed=step, note=note)

    def line(self, step: int, note: str) -> None:
        """Write one line that stays, on a terminal and in a pipe alike."""
        text = f"{self._title} {step}/{self._total} {note}"
        self._console.print(text, markup=False, highlight=False)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
