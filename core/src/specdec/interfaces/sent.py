"""Host-to-device transfer of small tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_ALIGNMENT = 16
"""Bytes; kernels are compiled once for pointers that are multiples of it, and again for others."""


def sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a host tensor to a device; to CUDA from pinned memory, so that the host does not wait."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def sent_together(arrays: Sequence[npt.NDArray[Any]], device: torch.device) -> list[torch.Tensor]:
    """Return arrays as tensors on a device, by one transfer."""
    return unpacked(sent(torch.from_numpy(packed(arrays)), device), arrays)


def packed(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
    """Return the bytes of arrays, each at an aligned place."""
    *starts, size = _starts(arrays)
    buffer = np.empty(size, np.uint8)
    for start, array in zip(starts, arrays, strict=True):
        buffer[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return buffer


def unpacked(buffer: torch.Tensor, arrays: Sequence[npt.NDArray[Any]]) -> list[torch.Tensor]:
    """Return views of a device's copy of `packed(arrays)`, one for each array."""
    kinds, starts = {each.dtype for each in arrays}, _starts(arrays)
    typed = {kind: buffer.view(torch.from_numpy(np.empty(0, kind)).dtype) for kind in kinds}
    flat = (
        typed[a.dtype].narrow(0, start // a.itemsize, a.size)
        for a, start in zip(arrays, starts, strict=False)
    )
    return [part if a.ndim == 1 else part.view(a.shape) for part, a in zip(flat, arrays, strict=True)]


def _starts(arrays: Sequence[npt.NDArray[Any]]) -> list[int]:
    """Return where each array begins in `packed`, in bytes, and where the last one ends, with what aligns the next one."""
    return [*accumulate((-(-each.nbytes // _ALIGNMENT) * _ALIGNMENT for each in arrays), initial=0)]


class Transfer:
    """Arrays that go to a device together with a pass, or by themselves if they are read before.

    Those without a name are the sampler's (`Sampler.transfer`); "paths" are slots of drafted nodes of trees, "cuts" and
    "penalties" what the scorer adds.

    Args:
        arrays: those without a name.
        growing: which of them has a number of each request that grows with its text, see `UnreadVerdict`; None for none.
    """

    def __init__(self, arrays: Sequence[npt.NDArray[Any]] = (), growing: int | None = None) -> None:
        self._arrays, self._places = [*arrays], {"": slice(len(arrays))}
        self.growing_at = [] if growing is None else [_starts(arrays)[growing]]
        """Where those begin that grow with texts, in bytes."""
        self._there: list[torch.Tensor] | None = None

    def add(self, name: str, arrays: Sequence[npt.NDArray[Any]], growing: int | None = None) -> None:
        """Send further arrays, before they are packed."""
        assert "packed" not in vars(self), "it is packed already"
        before = len(self._arrays)
        self._arrays += arrays
        self._places[name] = slice(before, len(self._arrays))
        self.growing_at += [] if growing is None else [_starts(self._arrays)[before + growing]]

    @cached_property
    def packed(self) -> npt.NDArray[np.uint8]:
        """The bytes to send."""
        return packed(self._arrays)

    def arrive(self, buffer: torch.Tensor) -> None:
        """Take the device's copy of `packed`."""
        self._there = unpacked(buffer, self._arrays)

    def on(self, device: torch.device, name: str = "") -> list[torch.Tensor]:
        """Return the arrays of a name as tensors on the device."""
        if self._there is None:
            self.arrive(sent(torch.from_numpy(self.packed), device))
        assert self._there is not None
        return self._there[self._places[name]]
