"""The operations between the matrix products of a layer, each in one pass over memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.arrays import add_rows
from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.math import fast_exp, narrow
from specdec_kernels.cpu.stored import Stored

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
_ONE, _HIGHEST = np.float32(1.0), np.float32(87.0)
_GELU, _GELU_CUBE = np.float32(2.0 * np.sqrt(2.0 / np.pi)), np.float32(0.044715)


@njit(fastmath=True, nogil=True, cache=True, error_model="numpy")
def norm(x: Floats, weight: Floats, epsilon: float, is_centred: bool, out: Floats) -> None:
    """Write `x / rms(x) * weight`, or the same of `x` less its mean, to `out`; both `[T, H]`."""
    size = x.shape[1]
    for t in range(x.shape[0]):
        mean = _mean(x[t]) if is_centred else np.float32(0.0)
        total = np.float32(0.0)
        for d in range(size):
            total += (x[t, d] - mean) * (x[t, d] - mean)
        scale = np.float32(1.0 / np.sqrt(total / size + epsilon))
        for d in range(size):
            out[t, d] = (x[t, d] - mean) * scale * weight[d]


@njit(fastmath=True, nogil=True, cache=True, error_model="numpy")
def add_norm(x: Floats, delta: Floats, weight: Floats, epsilon: float, is_centred: bool, out: Floats) -> None:
    """Add `delta` to `x` in place, then write its norm to `out`; all `[T, H]`."""
    if is_centred:
        add_rows(delta, x)
        norm(x, weight, epsilon, is_centred, out)
        return
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
def activate(gate_up: Floats, is_gelu: bool, out: Floats) -> None:
    """Write `f(gate) * up` `[T, I]` for `gate_up` `[T, 2 I]`; f is SiLU, or GELU by tanh."""
    if is_gelu:
        _gelu_multiply(gate_up, out)
    else:
        _silu_multiply(gate_up, out)


@njit(inline="always")
def _silu_multiply(gate_up: Floats, out: Floats) -> None:
    size = out.shape[1]
    for t in range(out.shape[0]):
        for d in range(size):
            gate = gate_up[t, d]
            out[t, d] = gate / (_ONE + fast_exp(min(-gate, _HIGHEST))) * gate_up[t, size + d]


@njit(inline="always")
def _gelu_multiply(gate_up: Floats, out: Floats) -> None:
    """As `x / (1 + e^(-2 z))`, z what the formula takes the hyperbolic tangent of."""
    size = out.shape[1]
    for t in range(out.shape[0]):
        for d in range(size):
            gate = gate_up[t, d]
            double = _GELU * gate * (_ONE + _GELU_CUBE * gate * gate)
            out[t, d] = gate / (_ONE + fast_exp(min(-double, _HIGHEST))) * gate_up[t, size + d]


@njit(fastmath=True, nogil=True, cache=True, error_model="numpy")
def scale(x: Floats, factor: float) -> None:
    """Multiply `x [T, H]` by a factor, in place."""
    for t in range(x.shape[0]):
        for d in range(x.shape[1]):
            x[t, d] *= np.float32(factor)


@njit(fastmath=True, nogil=True, cache=True, error_model="numpy")
def finish_logits(logits: Floats, factor: float, softcap: float) -> None:
    """Multiply logits `[R, V]` by a factor, then replace each by `c * tanh(logit / c)` if c, the soft cap, is not 0."""
    if factor != 1.0:
        scale(logits, factor)
    if softcap == 0.0:
        return
    cap, double = np.float32(softcap), np.float32(-2.0 / softcap)
    for r in range(logits.shape[0]):
        for j in range(logits.shape[1]):
            far = fast_exp(min(max(logits[r, j] * double, -_HIGHEST), _HIGHEST))
            logits[r, j] = cap * ((_ONE - far) / (_ONE + far))


@njit(fastmath=True, nogil=True, cache=True, error_model="numpy")
def norm_heads(heads: Floats, num_queries: int, weights: Floats, epsilon: float) -> None:
    """Normalize all queries of a row as one vector, then all its keys, in place.

    Args:
        heads: `[T, N]`: queries, keys, then others.
        num_queries: numbers of the queries of a row.
        weights: `[n]` weights of both norms.
        epsilon: epsilon of both norms.
    """
    for t in range(heads.shape[0]):
        for start, end in ((0, num_queries), (num_queries, weights.shape[0])):
            total = np.float32(0.0)
            for d in range(start, end):
                total += heads[t, d] * heads[t, d]
            factor = np.float32(1.0 / np.sqrt(total / (end - start) + epsilon))
            for d in range(start, end):
                heads[t, d] *= factor * weights[d]


@njit(fastmath=True, nogil=True, cache=True, error_model="numpy")
def rotate_and_store(
    heads: Floats,
    cos: Floats,
    sin: Floats,
    is_interleaved: bool,
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
        heads: `[T, N, D]`: queries, keys, then values if N is H + 2 Hkv; else keys are values too.
        cos: `[P, R]` by position; the first R dimensions of a head are rotated.
        sin: `[P, R]` by position, negated in the first of two dimensions that are rotated together.
        is_interleaved: neighbours are rotated together, rather than dimensions R / 2 apart.
        positions: `[T]`.
        slots: `[T]`.
        head_norms: `[2, D]` weights of the query and key norms, `[3, D]` with one of the values, or empty.
        epsilon: epsilon of these norms.
        keys: `[num_slots, Hkv, D]`, written.
        values: `[num_slots, Hkv, D]`, written.
        query: `[T, H, D]`, written.
    """
    num_heads, dim = query.shape[1], query.shape[2]
    num_kv_heads, width = keys.shape[1], cos.shape[1]
    half = width // 2
    # Views of heads would count references to the array; only norms make them.
    for t in range(heads.shape[0]):
        slot, position = slots[t], positions[t]
        for h in range(num_kv_heads):  # first, since keys, which may be values too, are then overwritten
            v = heads.shape[1] - num_kv_heads + h
            if head_norms.shape[0] > 2:
                factor = _inverse_rms(heads[t, v], epsilon)
                for d in range(dim):
                    values[slot, h, d] = narrow(
                        heads[t, v, d] * factor * head_norms[2, d], values[slot, h, d]
                    )
            else:
                for d in range(dim):
                    values[slot, h, d] = narrow(heads[t, v, d], values[slot, h, d])
        for h in range(num_heads + num_kv_heads):
            if head_norms.shape[0] > 0:
                factor, kind = _inverse_rms(heads[t, h], epsilon), 0 if h < num_heads else 1
                for d in range(dim):
                    heads[t, h, d] *= factor * head_norms[kind, d]
            if is_interleaved:
                for d in range(0, width, 2):
                    left = heads[t, h, d] * cos[position, d] + heads[t, h, d + 1] * sin[position, d]
                    right = heads[t, h, d + 1] * cos[position, d + 1] + heads[t, h, d] * sin[position, d + 1]
                    if h < num_heads:
                        query[t, h, d] = left
                        query[t, h, d + 1] = right
                    else:
                        keys[slot, h - num_heads, d] = narrow(left, keys[slot, h - num_heads, d])
                        keys[slot, h - num_heads, d + 1] = narrow(right, keys[slot, h - num_heads, d])
            else:
                for d in range(half):
                    left = heads[t, h, d] * cos[position, d] + heads[t, h, d + half] * sin[position, d]
                    right = (
                        heads[t, h, d + half] * cos[position, d + half]
                        + heads[t, h, d] * sin[position, d + half]
                    )
                    if h < num_heads:
                        query[t, h, d] = left
                        query[t, h, d + half] = right
                    else:
                        keys[slot, h - num_heads, d] = narrow(left, keys[slot, h - num_heads, d])
                        keys[slot, h - num_heads, d + half] = narrow(right, keys[slot, h - num_heads, d])
            for d in range(width, dim):
                if h < num_heads:
                    query[t, h, d] = heads[t, h, d]
                else:
                    keys[slot, h - num_heads, d] = narrow(heads[t, h, d], keys[slot, h - num_heads, d])


@njit(inline="always", fastmath=True)
def _mean(x: Floats) -> np.float32:
    """Return the mean of `x [H]`."""
    total = np.float32(0.0)
    for d in range(x.shape[0]):
        total += x[d]
    return np.float32(total / x.shape[0])


@njit(inline="always", fastmath=True)
def _inverse_rms(x: Floats, epsilon: float) -> np.float32:
    """Return 1 over the root of the mean square of `x [D]`."""
    total = np.float32(0.0)
    for d in range(x.shape[0]):
        total += x[d] * x[d]
    return np.float32(1.0 / np.sqrt(total / x.shape[0] + epsilon))
