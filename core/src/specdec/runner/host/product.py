"""Matrix products of a few rows, `x @ W.T`, bound by reading the weights once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from numba import njit, prange

from specdec.runner.host.math import widen

Floats = npt.NDArray[np.float32]
Weights = npt.NDArray[np.float32] | npt.NDArray[np.uint16]
MAX_PRODUCT_ROWS = 32
"""Up to here this beats blocked matrix products; beyond it arithmetic, not memory, is the bound."""


@njit(parallel=True, fastmath=True, nogil=True, cache=True)
def product(x: Floats, weight: Weights, out: Floats) -> None:
    """Write `x @ weight.T` to `out`; every weight is read once per four rows, from memory only once.

    Args:
        x: `[T, K]` float32.
        weight: `[N, K]` float32, or uint16 with the bits of bfloat16.
        out: `[T, N]` float32, written.
    """
    num_rows, depth = x.shape
    for n in prange(weight.shape[0]):
        t = 0
        while t + 4 <= num_rows:
            a, b, c, d = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for k in range(depth):
                w = widen(weight[n, k])
                a += w * x[t, k]
                b += w * x[t + 1, k]
                c += w * x[t + 2, k]
                d += w * x[t + 3, k]
            out[t, n], out[t + 1, n], out[t + 2, n], out[t + 3, n] = a, b, c, d
            t += 4
        rest = num_rows - t
        if rest == 3:
            a, b, c = np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for k in range(depth):
                w = widen(weight[n, k])
                a += w * x[t, k]
                b += w * x[t + 1, k]
                c += w * x[t + 2, k]
            out[t, n], out[t + 1, n], out[t + 2, n] = a, b, c
        elif rest == 2:
            a, b = np.float32(0.0), np.float32(0.0)
            for k in range(depth):
                w = widen(weight[n, k])
                a += w * x[t, k]
                b += w * x[t + 1, k]
            out[t, n], out[t + 1, n] = a, b
        elif rest == 1:
            a = np.float32(0.0)
            for k in range(depth):
                a += widen(weight[n, k]) * x[t, k]
            out[t, n] = a


def compact(weight: torch.Tensor) -> Weights | None:
    """Return a host weight `[N, K]` in the narrowest form that loses nothing, or None if neither form fits.

    A float32 weight that came from a bfloat16 checkpoint is stored as bfloat16 again: half the memory traffic, same numbers.
    """
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        return None
    half = weight.bfloat16()
    if weight.dtype == torch.bfloat16 or torch.equal(half.float(), weight):
        bits: npt.NDArray[np.uint16] = half.contiguous().view(torch.int16).numpy().view(np.uint16)
        return bits
    full: npt.NDArray[np.float32] = weight.contiguous().numpy()
    return full
