"""Progress of a run: a bar on a terminal, occasional lines in a pipe."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class RunProgress:
    """Shows the progress of a run; use as a context manager.

    Args:
        title: what is being trained.
        total: planned optimizer steps.
        console: output; standard error by default, which leaves standard output for results.
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
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._task = self._bar.add_task(title, total=1.0, note="")

    def update(self, step: int, note: str, done: float | None = None) -> None:
        """Move the bar; without a terminal nothing is written.

        Args:
            step: steps taken.
            note: text after the bar.
            done: share of the run that is done, if time counts as well; None to use the steps.
        """
        if self._bar is not None:
            share = step / self._total if done is None else min(done, 1.0)
            self._bar.update(self._task, completed=share, note=f"step {step} {note}")

    def line(self, step: int, note: str) -> None:
        """Write one permanent line, on a terminal and in a pipe."""
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


def time_left(seconds: float, done: float, max_seconds: float | None) -> str:
    """Return the remaining time of a run as text: `4 min left`.

    Args:
        seconds: time taken so far.
        done: share that is done, by steps or time, whichever is further.
        max_seconds: time budget, None for no limit.
    """
    if done >= 1.0:
        return "done"
    left = seconds * (1.0 - done) / done if done > 0.0 else max_seconds
    if left is None:
        return "time left unknown"
    if max_seconds is not None:
        left = min(left, max_seconds - seconds)
    if left < 90.0:
        return f"{left:.0f} s left"
    return f"{left / 60:.0f} min left" if left < 5400.0 else f"{left / 3600:.1f} h left"
