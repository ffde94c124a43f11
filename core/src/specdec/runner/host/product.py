"""Matrix products of a few rows, `x @ W.T`, bound by reading the weights once."""

from __future__ import annotations

from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import torch
from llvmlite.binding import get_host_cpu_features
from numba import njit, prange

from specdec.runner.host.math import widen
from specdec.runner.host.prefetch import prefetch

Floats = npt.NDArray[np.float32]
Weights = npt.NDArray[np.float32] | npt.NDArray[np.uint16]
MAX_PRODUCT_ROWS = 32
"""Up to here this beats blocked matrix products; beyond it arithmetic, not memory, is the bound."""
_BLOCK = 4
"""Weight rows of one block; a block times three rows keeps twelve sums in 16 registers, times four rows sixteen in 32."""

_BYTES_AHEAD = 12288
"""How far before they are read weights are asked for: the processor itself does not look beyond the page it reads."""


def _has_32_registers() -> bool:
    """Return whether this processor has 32 vector registers, as those with AVX-512 have: enough for 4 x 4 sums."""
    try:
        return bool(get_host_cpu_features().get("avx512f", False))
    except RuntimeError:  # llvmlite cannot tell on every platform
        return False


_HAS_32_REGISTERS = _has_32_registers()


@njit(parallel=True, fastmath=True, nogil=True, cache=True, error_model="numpy")
def product(x: Floats, weight: Weights, out: Floats) -> None:
    """Write `x @ weight.T` to `out`; every weight is read from memory only once.

    Args:
        x: `[T, K]` float32.
        weight: `[N, K]` float32, or uint16 with the bits of bfloat16.
        out: `[T, N]` float32, written.
    """
    num_rows, depth = x.shape
    num_out = weight.shape[0]
    start, step = weight.ctypes.data, _BLOCK * depth * weight.itemsize
    ahead = max(1, _BYTES_AHEAD // step) * step
    for block in prange((num_out + _BLOCK - 1) // _BLOCK):
        n = block * _BLOCK
        if n + _BLOCK > num_out:
            for i in range(n, num_out):
                for t in range(num_rows):
                    total = np.float32(0.0)
                    for k in range(depth):
                        total += widen(weight[i, k]) * x[t, k]
                    out[t, i] = total
            continue
        w0, w1, w2, w3 = weight[n], weight[n + 1], weight[n + 2], weight[n + 3]
        if block * step + ahead < num_out * depth * weight.itemsize:
            prefetch(start + block * step + ahead, step)
        t = 0
        if _HAS_32_REGISTERS:
            while t + 4 <= num_rows:
                four_rows(x[t], x[t + 1], x[t + 2], x[t + 3], w0, w1, w2, w3, out[t : t + 4, n : n + 4])
                t += 4
        while t + 3 <= num_rows:
            three_rows(x[t], x[t + 1], x[t + 2], w0, w1, w2, w3, out[t : t + 3, n : n + 4])
            t += 3
        if num_rows - t == 2:
            two_rows(x[t], x[t + 1], w0, w1, w2, w3, out[t : t + 2, n : n + 4])
        elif num_rows - t == 1:
            one_row(x[t], w0, w1, w2, w3, out[t : t + 1, n : n + 4])


@njit(fastmath=True, inline="always")
def one_row(x: Floats, w0: Weights, w1: Weights, w2: Weights, w3: Weights, out: Floats) -> None:
    """Write the products of a row `[K]` with four rows of weights `[K]` to `out [1, 4]`."""
    a0 = a1 = a2 = a3 = np.float32(0.0)
    for k in range(x.shape[0]):
        a0 += widen(w0[k]) * x[k]
        a1 += widen(w1[k]) * x[k]
        a2 += widen(w2[k]) * x[k]
        a3 += widen(w3[k]) * x[k]
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = a0, a1, a2, a3


@njit(fastmath=True, inline="always")
def two_rows(x: Floats, y: Floats, w0: Weights, w1: Weights, w2: Weights, w3: Weights, out: Floats) -> None:
    """Write the products of two rows `[K]` with four rows of weights `[K]` to `out [2, 4]`."""
    a0 = a1 = a2 = a3 = np.float32(0.0)
    b0 = b1 = b2 = b3 = np.float32(0.0)
    for k in range(x.shape[0]):
        u0, u1, u2, u3 = widen(w0[k]), widen(w1[k]), widen(w2[k]), widen(w3[k])
        a0 += u0 * x[k]
        a1 += u1 * x[k]
        a2 += u2 * x[k]
        a3 += u3 * x[k]
        b0 += u0 * y[k]
        b1 += u1 * y[k]
        b2 += u2 * y[k]
        b3 += u3 * y[k]
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = a0, a1, a2, a3
    out[1, 0], out[1, 1], out[1, 2], out[1, 3] = b0, b1, b2, b3


@njit(fastmath=True, inline="always")
def three_rows(
    x: Floats, y: Floats, z: Floats, w0: Weights, w1: Weights, w2: Weights, w3: Weights, out: Floats
) -> None:
    """Write the products of three rows `[K]` with four rows of weights `[K]` to `out [3, 4]`."""
    a0 = a1 = a2 = a3 = np.float32(0.0)
    b0 = b1 = b2 = b3 = np.float32(0.0)
    c0 = c1 = c2 = c3 = np.float32(0.0)
    for k in range(x.shape[0]):
        u0, u1, u2, u3 = widen(w0[k]), widen(w1[k]), widen(w2[k]), widen(w3[k])
        a0 += u0 * x[k]
        a1 += u1 * x[k]
        a2 += u2 * x[k]
        a3 += u3 * x[k]
        b0 += u0 * y[k]
        b1 += u1 * y[k]
        b2 += u2 * y[k]
        b3 += u3 * y[k]
        c0 += u0 * z[k]
        c1 += u1 * z[k]
        c2 += u2 * z[k]
        c3 += u3 * z[k]
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = a0, a1, a2, a3
    out[1, 0], out[1, 1], out[1, 2], out[1, 3] = b0, b1, b2, b3
    out[2, 0], out[2, 1], out[2, 2], out[2, 3] = c0, c1, c2, c3


@njit(fastmath=True, inline="always")
def four_rows(
    x: Floats,
    y: Floats,
    z: Floats,
    v: Floats,
    w0: Weights,
    w1: Weights,
    w2: Weights,
    w3: Weights,
    out: Floats,
) -> None:
    """Write the products of four rows `[K]` with four rows of weights `[K]` to `out [4, 4]`."""
    a0 = a1 = a2 = a3 = np.float32(0.0)
    b0 = b1 = b2 = b3 = np.float32(0.0)
    c0 = c1 = c2 = c3 = np.float32(0.0)
    d0 = d1 = d2 = d3 = np.float32(0.0)
    for k in range(x.shape[0]):
        u0, u1, u2, u3 = widen(w0[k]), widen(w1[k]), widen(w2[k]), widen(w3[k])
        a0 += u0 * x[k]
        a1 += u1 * x[k]
        a2 += u2 * x[k]
        a3 += u3 * x[k]
        b0 += u0 * y[k]
        b1 += u1 * y[k]
        b2 += u2 * y[k]
        b3 += u3 * y[k]
        c0 += u0 * z[k]
        c1 += u1 * z[k]
        c2 += u2 * z[k]
        c3 += u3 * z[k]
        d0 += u0 * v[k]
        d1 += u1 * v[k]
        d2 += u2 * v[k]
        d3 += u3 * v[k]
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = a0, a1, a2, a3
    out[1, 0], out[1, 1], out[1, 2], out[1, 3] = b0, b1, b2, b3
    out[2, 0], out[2, 1], out[2, 2], out[2, 3] = c0, c1, c2, c3
    out[3, 0], out[3, 1], out[3, 2], out[3, 3] = d0, d1, d2, d3


_COMPACT: WeakValueDictionary[tuple[int, tuple[int, ...]], npt.NDArray[np.uint16]] = WeakValueDictionary()
"""Weights in bfloat16 by address and shape of what they were made of, so that models that share a weight share it too."""


def compact(weight: torch.Tensor) -> Weights | None:
    """Return a host weight `[N, K]` in the narrowest form that loses nothing, or None if neither form fits.

    A float32 weight that came from a bfloat16 checkpoint is stored as bfloat16 again: half the memory traffic, same numbers.
    """
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        return None
    half = weight.bfloat16()
    if weight.dtype == torch.bfloat16 or torch.equal(half.float(), weight):
        bits: npt.NDArray[np.uint16] = half.contiguous().view(torch.int16).numpy().view(np.uint16)
        key = weight.data_ptr(), tuple(weight.shape)
        known = _COMPACT.get(key)
        if known is not None and np.array_equal(known, bits):
            return known
        _COMPACT[key] = bits
        return bits
    full: npt.NDArray[np.float32] = weight.contiguous().numpy()
    return full


def widened(weight: Weights) -> npt.NDArray[np.float32]:
    """Return a stored weight as float32."""
    if weight.dtype == np.float32:
        return weight  # type: ignore[return-value]  # numpy's types do not narrow by dtype
    return (weight.astype(np.uint32) << 16).view(np.float32)
