"""Several arrays in one transfer to the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from specdec.runner import sent

_ALIGNMENT = 16
"""Bytes; kernels are compiled once for pointers that are multiples of it, and again for others."""


def sent_together(arrays: Sequence[npt.NDArray[Any]], device: torch.device) -> list[torch.Tensor]:
    """Return arrays as tensors on a device, which share one memory."""
    ends = np.cumsum([-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays]).tolist()
    buffer = np.empty(ends[-1], np.uint8)
    starts = [0, *ends[:-1]]
    for start, array in zip(starts, arrays, strict=True):
        buffer[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    on_device = sent(torch.from_numpy(buffer), device)
    return [
        on_device[start : start + array.nbytes].view(_dtype(array)).view(array.shape)
        for start, array in zip(starts, arrays, strict=True)
    ]


def _dtype(array: npt.NDArray[Any]) -> torch.dtype:
    return torch.from_numpy(array[:0]).dtype
