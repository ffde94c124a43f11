"""Progress: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
from time import sleep

import pytest

from specdec_cli import progress_bar


def test_a_pipe_gets_a_line_every_while_whatever_happens(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_bar, "LINE_EVERY_S", 0.05)
    with progress_bar.progress("working", total=8) as steps:
        steps.advance(3)
        sleep(0.2)  # one long step
        steps.expect(12)
        sleep(0.2)
    with progress_bar.loading("a model"):
        sleep(0.2)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert len(lines) >= 6
    assert set(lines) == {
        "specdec: working: 3 of 8 steps after 0 s",
        "specdec: working: 3 of 12 steps after 0 s",
        "specdec: loading a model after 0 s",
    }


def test_core_is_silent_where_a_command_shows_progress(caplog: pytest.LogCaptureFixture) -> None:
    lines = logging.getLogger("specdec.loading")
    for shown in (progress_bar.loading("a model"), progress_bar.progress("working", total=1)):
        with shown:
            lines.warning("of core")
        assert caplog.messages == []
    lines.warning("of core")
    assert caplog.messages == ["of core"]


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


def test_progress_inside_progress_is_told_in_its_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_bar, "LINE_EVERY_S", 0.05)
    with progress_bar.progress("working", total=8) as steps:
        steps.advance(3)
        with progress_bar.progress("rounding", total=100) as inner:
            inner.advance(50)
            sleep(0.2)
        sleep(0.2)
    with progress_bar.progress("again", total=2):
        sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert list(dict.fromkeys(lines)) == [
        "specdec: working (rounding): 3 of 8 steps after 0 s",
        "specdec: working: 3 of 8 steps after 0 s",
        "specdec: again: 0 of 2 steps after 0 s",
    ]
