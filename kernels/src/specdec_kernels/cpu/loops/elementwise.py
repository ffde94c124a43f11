"""The operations between the matrix products of a layer, each in one pass over memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.math import fast_exp, narrow
from specdec_kernels.cpu.stored import Stored

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@njit(fastmath=True, nogil=True, cache=True, error_model="numpy")
def norm(x: Floats, weight: Floats, epsilon: float, out: Floats) -> None:
    """Write `x / rms(x) * weight` to `out`; both `[T, H]`."""
    size = x.shape[1]
    for t in range(x.shape[0]):
        total = np.float32(0.0)
        for d in range(size):
            total += x[t, d] * x[t, d]
        scale = np.float32(1.0 / np.sqrt(total / size + epsilon))
        for d in range(size):
            out[t, d] = x[t, d] * scale * weight[d]


@njit(fastmath=True, nogil=True, cache=True, error_model="numpy")
def add_norm(x: Floats, delta: Floats, weight: Floats, epsilon: float, out: Floats) -> None:
    """Add `delta` to `x` in place, then write its norm to `out`; all `[T, H]`."""
    size = x.shape[1]
    for t in range(x.shape[0]):
        total = np.float32(0.0)
        for d in range(size):
            value = x[t, d] + delta[t, d]
            x[t, d] = value
            total += value * value
        scale = np.float32(1.0 / np.sqrt(total / size + epsilon))
        for d in range(size):
            out[t, d] = x[t, d] * scale * weight[d]


@njit(fastmath=True, nogil=True, cache=True, error_model="numpy")
def silu_multiply(gate_up: Floats, out: Floats) -> None:
    """Write `silu(gate) * up` `[T, I]` for `gate_up` `[T, 2 I]`."""
    size = out.shape[1]
    for t in range(out.shape[0]):
        for d in range(size):
            gate = gate_up[t, d]
            out[t, d] = (
                gate / (np.float32(1.0) + fast_exp(min(-gate, np.float32(87.0)))) * gate_up[t, size + d]
            )


@njit(fastmath=True, nogil=True, cache=True, error_model="numpy")
def rotate_and_store(
    heads: Floats,
    cos: Floats,
    sin: Floats,
    positions: Ints,
    slots: Ints,
    head_norms: Floats,
    epsilon: float,
    keys: Stored,
    values: Stored,
    query: Floats,
) -> None:
    """Normalize (if there are head norms) and rotate queries and keys; store keys and values in the cache.

    Args:
        heads: `[T, H + 2 Hkv, D]`: queries, keys, values.
        cos: `[P, D]` by position.
        sin: `[P, D]` by position, negated in its first half.
        positions: `[T]`.
        slots: `[T]`.
        head_norms: `[2, D]` weights of the query and key norms, or empty.
        epsilon: epsilon of these norms.
        keys: `[num_slots, Hkv, D]`, written.
        values: `[num_slots, Hkv, D]`, written.
        query: `[T, H, D]`, written.
    """
    num_heads, dim = query.shape[1], query.shape[2]
    num_kv_heads = keys.shape[1]
    half = dim // 2
    for t in range(heads.shape[0]):
        slot, position = slots[t], positions[t]
        for h in range(num_heads + num_kv_heads):
            x = heads[t, h]
            if head_norms.shape[0] > 0:
                weight = head_norms[0 if h < num_heads else 1]
                total = np.float32(0.0)
                for d in range(dim):
                    total += x[d] * x[d]
                scale = np.float32(1.0 / np.sqrt(total / dim + epsilon))
                for d in range(dim):
                    x[d] *= scale * weight[d]
            for d in range(half):
                left = x[d] * cos[position, d] + x[d + half] * sin[position, d]
                right = x[d + half] * cos[position, d + half] + x[d] * sin[position, d + half]
                if h < num_heads:
                    query[t, h, d] = left
                    query[t, h, d + half] = right
                else:
                    keys[slot, h - num_heads, d] = narrow(left, keys[slot, h - num_heads, d])
                    keys[slot, h - num_heads, d + half] = narrow(right, keys[slot, h - num_heads, d])
        for h in range(num_kv_heads):
            for d in range(dim):
                values[slot, h, d] = narrow(heads[t, num_heads + num_kv_heads + h, d], values[slot, h, d])
