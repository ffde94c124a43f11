"""Progress: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys

import pytest

from specdec.cli import progress_bar


class Clock:
    """A clock that stands still unless it is told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_pipe_gets_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(progress_bar, "perf_counter", clock)
    with progress_bar.progress("working", total=8) as steps:
        for clock.now in (1.0, 16.0, 17.0):
            steps.advance()
        steps.expect(12)
        clock.now = 40.0
        steps.advance(2)
    assert capsys.readouterr() == (
        "",
        "specdec: working: 2 of 8 steps after 16 s\nspecdec: working: 5 of 12 steps after 40 s\n",
    )


def test_a_short_task_says_nothing_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar.progress("working", total=2) as steps, progress_bar.loading("a model"):
        steps.advance()
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar.progress("working", total=4) as steps:
        steps.expect(8)
        steps.advance(4)
    out, err = capsys.readouterr()
    assert out == ""
    assert "working" in err
    assert "50%" in err
    with progress_bar.loading("a model"):
        pass
    assert "loading a model" in capsys.readouterr().err
