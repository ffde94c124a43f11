"""The command line answers at once."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

SPECDEC = Path(sys.executable).with_name("specdec")
LIMIT_S = 0.5


@pytest.mark.parametrize("arguments", [["--help"], ["plugins", "--json"]])
def test_listing_takes_less_than_half_a_second(arguments: list[str]) -> None:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([SPECDEC, *arguments], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    assert min(times) < LIMIT_S, times


@pytest.mark.parametrize("arguments", [["--help"], ["plugins", "--json"], ["plugins"], ["config", "--help"]])
def test_listing_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from specdec.cli.main import run; "
        f"code = run({arguments!r}); "
        "heavy = [m for m in ('torch', 'transformers', 'numpy', 'yaml') if m in sys.modules]; "
        "print(code, heavy, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "0 []"
