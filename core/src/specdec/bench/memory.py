"""The most memory that was in use during a turn."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


class PeakMemory:
    """From its making on: the most device memory that torch had allocated, on the host the most of the process.

    Where the system cannot forget an earlier peak (other than Linux), what is in use when it is read stands in
    for the peak.

    Args:
        device: where the model is.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._has_peak = False
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            _CLEAR.write_text("5", encoding="ascii")
            self._has_peak = True
        except OSError:
            pass

    def read_mb(self) -> float:
        """Return the peak, in millions of bytes."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 1e6
        if self._has_peak:
            for line in _STATUS.read_text(encoding="ascii").splitlines():
                name, _, value = line.partition(":")
                if name == "VmHWM":
                    return int(value.split()[0]) * 1024 / 1e6
        return psutil.Process().memory_info().rss / 1e6
