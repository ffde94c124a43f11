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
    buffer = np.empty(sum(map(_size, arrays)), np.uint8)
    start = 0
    for array in arrays:
        buffer[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        start += _size(array)
    return buffer


def unpacked(buffer: torch.Tensor, arrays: Sequence[npt.NDArray[Any]]) -> list[torch.Tensor]:
    """Return views of a device's copy of `packed(arrays)`, one for each array."""
    kinds, starts = {each.dtype for each in arrays}, accumulate(map(_size, arrays), initial=0)
    typed = {kind: buffer.view(torch.from_numpy(np.empty(0, kind)).dtype) for kind in kinds}
    flat = (typed[a.dtype].narrow(0, next(starts) // a.itemsize, a.size) for a in arrays)
    return [part if a.ndim == 1 else part.view(a.shape) for part, a in zip(flat, arrays, strict=True)]


def _size(array: npt.NDArray[Any]) -> int:
    """Return the bytes of an array with what aligns the next one."""
    return -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT


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
        self._growing = [] if growing is None else [growing]
        self._there: list[torch.Tensor] | None = None

    @property
    def growing_at(self) -> list[int]:
        """Where those begin that grow with texts, in bytes."""
        return [sum(map(_size, self._arrays[:place])) for place in self._growing]

    def add(self, name: str, arrays: Sequence[npt.NDArray[Any]], growing: int | None = None) -> None:
        """Send further arrays, before they are packed."""
        assert "packed" not in vars(self), "it is packed already"
        self._growing += [] if growing is None else [len(self._arrays) + growing]
        self._places[name] = slice(len(self._arrays), len(self._arrays) + len(arrays))
        self._arrays += arrays

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
