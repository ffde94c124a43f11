"""What `first_start.py` says of a command is what the command did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from first_start import COMMANDS, start

PYTHON = Path(sys.executable)
SLOW = """
import os, pathlib, sys, time
print("first", file=sys.stderr)
end = time.process_time() + 1.0
while time.process_time() < end: pass
print("second")
pathlib.Path(os.path.expanduser("~/a.nbc")).touch()
assert "VIRTUAL_ENV" not in os.environ
"""


def test_times_and_what_was_compiled(tmp_path: Path) -> None:
    taken = start(("python", "-c", SLOW), PYTHON, tmp_path, is_writable=True)
    assert taken.cpu_s >= 1.0
    assert (
        taken.first_output_s + 0.5 <= taken.first_text_s <= taken.end_s
    )  # a busy machine tells of output late
    assert 0.5 <= taken.silence_s <= taken.end_s
    assert taken.num_compiled == 1


def test_a_command_that_fails_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        start(("python", "-c", "raise SystemExit('the reason')"), PYTHON, tmp_path, is_writable=True)
    assert "the reason" in capsys.readouterr().err


def test_the_example_is_that_of_the_readme() -> None:
    assert "make" not in COMMANDS["README"][-1]
    compile(COMMANDS["README"][-1], "README", "exec")
