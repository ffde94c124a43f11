"""The most memory that was in use during a turn."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_SLACK = 32_000_000  # what other threads may take while the system forgets, in bytes


class PeakMemory:
    """From its making on: the most device memory that torch had allocated, on the host the most of the process.

    Where the system cannot forget an earlier peak (other than Linux, or a sandbox that ignores the request), what
    is in use when it is read stands in for the peak.

    Args:
        device: where the model is.
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
    """Make the system forget the process's peak; whether it did."""
    in_use = psutil.Process().memory_info().rss
    try:
        _CLEAR.write_text("5", encoding="ascii")
    except OSError:
        return False
    return 0 < _read_peak() <= in_use + _SLACK


def _read_peak() -> int:
    """Return the most that was resident, in bytes; 0 if the system does not say."""
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * 1024
    return 0
