"""Progress is a bar on a terminal and a few lines in a pipe."""

from __future__ import annotations

import io

from rich.console import Console

from specdec_train.progress import RunProgress


def show(*, is_terminal: bool) -> str:
    """What a run of two steps writes."""
    stream = io.StringIO()
    with RunProgress("target", 2, Console(file=stream, force_terminal=is_terminal, width=100)) as progress:
        progress.update(1, "loss 2.000")
        progress.update(2, "loss 1.000")
        progress.line(2, "held-out 1.5")
    return stream.getvalue()


def test_pipe_gets_lines_only() -> None:
    assert show(is_terminal=False) == "target 2/2 held-out 1.5\n"


def test_terminal_gets_a_bar() -> None:
    text = show(is_terminal=True)
    assert "held-out 1.5" in text
    assert "━" in text
