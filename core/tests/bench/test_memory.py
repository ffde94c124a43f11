"""Peak memory of the process."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from specdec.bench.memory import PeakMemory

CAN_FORGET = os.access("/proc/self/clear_refs", os.W_OK)


@pytest.mark.skipif(not CAN_FORGET, reason="this system cannot forget an earlier peak")
def test_the_peak_counts_what_was_freed_and_forgets_what_was_before() -> None:
    cpu = torch.device("cpu")
    before = PeakMemory(cpu).read_mb()
    peak = PeakMemory(cpu)
    np.ones(25_000_000)
    highest = peak.read_mb()
    assert highest >= before + 150
    assert PeakMemory(cpu).read_mb() < highest - 100
