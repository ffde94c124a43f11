"""Peak memory use during a turn."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_SLACK = 32_000_000  # bytes that other threads may allocate while the peak is being reset


class PeakMemory:
    """Peak memory since construction: device memory allocated by torch, or resident memory of the process on a CPU.

    Where an earlier peak cannot be reset (systems other than Linux, or a sandbox that ignores the request), the memory
    in use at the time of reading is returned instead of the peak.

    Args:
        device: the model's device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._has_peak = False
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        self._has_peak = _forget_peak()

    def read_mb(self) -> float:
        """Return the peak, in millions of bytes."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 1e6
        in_use = psutil.Process().memory_info().rss
        return max(in_use, _read_peak()) / 1e6 if self._has_peak else in_use / 1e6


def _forget_peak() -> bool:
    """Reset the process's peak; return whether this worked."""
    in_use = psutil.Process().memory_info().rss
    try:
        _CLEAR.write_text("5", encoding="ascii")
    except OSError:
        return False
    return 0 < _read_peak() <= in_use + _SLACK


def _read_peak() -> int:
    """Return the peak resident memory, in bytes; 0 if the system does not report it."""
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * 1024
    return 0
