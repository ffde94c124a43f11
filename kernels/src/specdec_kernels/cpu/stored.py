"""Cache rows as arrays of compiled code."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from specdec_runtime.interfaces import KVCache

Stored = npt.NDArray[np.float32] | npt.NDArray[np.uint16]
"""Cache rows as numpy arrays: float32, or the bits of bfloat16."""


def stored_rows(cache: KVCache, layer: int) -> tuple[Stored, Stored]:
    """Return keys and values of a layer as arrays; only for float32 and bfloat16 on the CPU."""
    return _stored(cache.keys[layer]), _stored(cache.values[layer])


def _stored(tensor: torch.Tensor) -> Stored:
    if tensor.dtype == torch.bfloat16:
        bits: npt.NDArray[np.uint16] = tensor.view(torch.int16).numpy().view(np.uint16)
        return bits
    full: npt.NDArray[np.float32] = tensor.numpy()
    return full
