"""Host-to-device transfer of small tensors."""

from __future__ import annotations

from collections.abc import Sequence
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
    tensors = [torch.from_numpy(array) for array in arrays]
    ends = np.cumsum([-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays]).tolist()
    buffer, starts = np.empty(ends[-1], np.uint8), [0, *ends[:-1]]
    for start, array in zip(starts, arrays, strict=True):
        buffer[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    parts = sent(torch.from_numpy(buffer), device).split(np.diff([0, *ends]).tolist())
    return [
        part[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        for part, tensor in zip(parts, tensors, strict=True)
    ]
