"""Peak memory of the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from specdec_cli.bench import memory
from specdec_cli.bench.memory import PeakMemory

CAN_FORGET = os.access("/proc/self/clear_refs", os.W_OK)

# A process of its own: what other tests and their threads hold or give back does not count.
ALONE = """
import numpy, pathlib, torch
from specdec_cli.bench.memory import PeakMemory

cpu = torch.device("cpu")
before = PeakMemory(cpu).read_mb()
peak = PeakMemory(cpu)
numpy.ones(25_000_000)
highest = peak.read_mb()
numpy.ones(25_000_000)
after = PeakMemory(cpu).read_mb()

def high():
    return next(line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)

numpy.ones(25_000_000)
was = high()
pathlib.Path("/proc/self/clear_refs").write_text("5")
print(before, highest, after, high() != was)
"""


@pytest.mark.skipif(not CAN_FORGET, reason="this system cannot forget an earlier peak")
def test_the_peak_counts_what_was_freed_and_forgets_what_was_before() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=True, timeout=120
    )
    *numbers, forgets = answer.stdout.split()
    before, highest, after = map(float, numbers)
    assert abs(after - before) <= 50
    if forgets == "True":
        assert highest >= before + 150


def test_what_is_in_use_stands_in_where_the_system_ignores_the_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status = tmp_path / "status"
    status.write_text("VmHWM:\t  99999999 kB\n", encoding="ascii")
    monkeypatch.setattr(memory, "_CLEAR", tmp_path / "clear_refs")
    monkeypatch.setattr(memory, "_STATUS", status)
    peak = PeakMemory(torch.device("cpu"))
    assert abs(peak.read_mb() - psutil.Process().memory_info().rss / 1e6) <= 50
