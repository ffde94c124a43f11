"""The command line answers at once."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

SPECDEC = Path(sys.executable).with_name("specdec")
LIMIT_S, MOST_STARTS = 0.5, 32
"""Of a command, in seconds, and on slow processors in starts of Python itself."""


def processor_seconds(*command: str | Path) -> float:
    """Return the time a command computes: what a clock shows on an idle machine, whatever else runs on this one."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("arguments", [["--help"], ["plugins", "--json"]])
def test_listing_takes_less_than_half_a_second(arguments: list[str]) -> None:
    times = [processor_seconds(SPECDEC, *arguments) for _ in range(3)]
    start = min(processor_seconds(sys.executable, "-c", "pass") for _ in range(3))
    assert min(times) < max(LIMIT_S, MOST_STARTS * start), (times, start)


@pytest.mark.parametrize("arguments", [["--help"], ["plugins", "--json"], ["plugins"], ["config", "--help"]])
def test_listing_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from specdec_cli.main import run; "
        f"code = run({arguments!r}); "
        "heavy = [m for m in ('torch', 'transformers', 'numpy', 'yaml') if m in sys.modules]; "
        "print(code, heavy, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "0 []"
