"""Matrix products of a few rows, `x @ W.T`, which are bound by reading the weights once."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import torch
from numba import prange

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.jobs import job_of
from specdec_kernels.cpu.compiled.math import narrow, widen
from specdec_kernels.cpu.compiled.team import part_of, share
from specdec_kernels.cpu.loops.lanes import LANES
from specdec_kernels.cpu.loops.memory import keep
from specdec_kernels.cpu.loops.pointer import array_at
from specdec_kernels.cpu.loops.tile import TILE_WEIGHTS, row_tiles

Floats = npt.NDArray[np.float32]
Weights = npt.NDArray[np.float32] | npt.NDArray[np.uint16]
Rows = npt.NDArray[np.float32] | npt.NDArray[np.uint16]
MAX_PRODUCT_ROWS = 256 if LANES == 16 else 20
"""Up to this many rows, this beats blocked products: those of torch, and those of oneDNN with reordered weights.

The 106 million weights of SmolLM2's layers, 2 cores of an EPYC of Zen 5, ms for 16 / 32 / 64 / 128 / 256 rows: in bfloat16
10.5 / 20.6 / 36 / 72 / 137, torch 27 / 34 / 58 / 91 / 156; in float32 21 / 36 / 71 / 143, oneDNN 26 / 42 / 83 / 139. With
AVX2 vectors in float32 for 16 / 24 / 32 / 64 rows 35 / 54 / 80 / 137, oneDNN 46 / 47 / 62 / 104. Layers of 16,384 x 2,048 to
28,672 x 4,096 behave the same: faster up to 128 rows, equally fast at 256.
"""

_ALONE = 1 << 16
"""Up to this many multiplications one thread is done before it has gathered others, which it waits for where the system is
busy: 5.1 µs and 5.3 µs for 256 x 256 float32 weights, 2 cores of a Xeon with AVX-512."""
_MANY_ROWS = 16
"""From this many rows on, a team rounds them together."""
_BYTES_AHEAD = 8192
"""Minimum prefetch distance of weights for several rows; the hardware prefetcher does not cross page boundaries.

(One row reads weights sequentially, where the hardware prefetcher is faster; see `tile`.)

One line is prefetched with each line that is read. If a block is prefetched at a time, the requests queue up, and products
of 8 and 16 rows, which could be computed while the weights arrive, stall: 12.5 and 18.2 ms instead of 9.1 and 12.0 for the
269 MB of SmolLM2-135M in bfloat16, where one row takes 8.1 and summing as many bytes 7.7 (2 cores of an EPYC of Zen 5,
variants interleaved).
"""


@njit(parallel=True, fastmath=True, nogil=True, cache=True, error_model="numpy")
def product(x: Rows, weight: Weights, out: Floats) -> None:
    """Write `x @ weight.T` to `out`; every weight is read from memory only once.

    A row's result does not depend on how many rows there are.

    Args:
        x: `[T, K]` float32, or uint16 with the bits of bfloat16 (needs `HAS_BFLOAT16_PAIRS` and such weights).
        weight: `[N, K]` float32, or uint16 with the bits of bfloat16.
        out: `[T, N]` float32, contiguous, written.
    """
    for block in prange((weight.shape[0] + TILE_WEIGHTS - 1) // TILE_WEIGHTS):
        _multiply_blocks(x, weight, out, range(block, block + 1))


@njit(nogil=True, error_model="numpy")
def product_in_team(team: int, x: Rows, weight: Weights, out: Floats) -> None:
    """As `product`, by the threads of the team at an address."""
    share(team, job_of(_part, (
        x.ctypes.data, x.dtype, weight.ctypes.data, weight.dtype, out.ctypes.data, x.shape[0], x.shape[1], weight.shape[0],
    )))  # fmt: skip


@njit(nogil=True, error_model="numpy")
def _part(
    x: int, kind: Any, weight: int, weight_kind: Any, out: int, num_rows: int, depth: int, num_out: int, part: int,
    num_parts: int,
) -> None:  # fmt: skip
    """Multiply with a part of the weights; takes addresses, as threads that share arrays wait to count references."""
    num_blocks = (num_out + TILE_WEIGHTS - 1) // TILE_WEIGHTS
    _multiply_blocks(
        array_at(x, (num_rows, depth), kind), array_at(weight, (num_out, depth), weight_kind),
        array_at(out, (num_rows, num_out), np.float32), part_of(num_blocks, part, num_parts),
    )  # fmt: skip


@njit(fastmath=True, nogil=True, error_model="numpy")
def _multiply_blocks(x: Rows, weight: Weights, out: Floats, blocks: Any) -> None:
    """Multiply with a range of blocks of `TILE_WEIGHTS` rows of weights."""
    num_rows, depth = x.shape
    num_out = weight.shape[0]
    rows, rows_step = x.ctypes.data, depth * x.itemsize
    columns, columns_step = weight.ctypes.data, depth * weight.itemsize
    sums, sums_step = out.ctypes.data, num_out * 4
    step = TILE_WEIGHTS * columns_step
    ahead = (_BYTES_AHEAD + step - 1) // step * step
    for block in blocks:
        n = block * TILE_WEIGHTS
        if n + TILE_WEIGHTS > num_out:
            for i in range(n, num_out):
                for t in range(num_rows):
                    out[t, i] = dot(x[t], weight[i], 0)
            continue
        done = row_tiles(
            x,
            weight,
            num_rows,
            rows,
            rows_step,
            columns + block * step,
            columns_step,
            sums + n * 4,
            sums_step,
            depth,
            ahead,
        )
        if done < depth:
            for t in range(num_rows):
                for i in range(n, n + TILE_WEIGHTS):
                    out[t, i] += dot(x[t], weight[i], done)


@njit(fastmath=True, inline="always")
def dot(x: Rows, weight: Weights, start: int) -> np.float32:
    """Return the dot product of a row `[K]` and a row of weights `[K]` from `start` on."""
    total = np.float32(0.0)
    for k in range(start, x.shape[0]):
        total += widen(weight[k]) * widen(x[k])
    return total


@njit(nogil=True, cache=True, error_model="numpy")
def multiply(x: Floats, weight: Weights, out: Floats, is_rounded: bool) -> None:
    """Write `x @ weight.T` to `out`, with `x [T, K]` rounded to bfloat16 first if `is_rounded`; see `product`."""
    if not is_rounded:
        _product(x, weight, out)
        return
    rounded = np.empty(x.shape, np.uint16)
    _round(x, rounded, range(x.shape[0]))
    _product(rounded, weight, out)


@njit(nogil=True, error_model="numpy")
def _product(x: Rows, weight: Weights, out: Floats) -> None:
    if x.shape[0] * weight.size <= _ALONE:
        _multiply_blocks(x, weight, out, range((weight.shape[0] + TILE_WEIGHTS - 1) // TILE_WEIGHTS))
    else:
        product(x, weight, out)


@njit(nogil=True, error_model="numpy")
def multiply_in_team(team: int, x: Floats, weight: Weights, out: Floats, is_rounded: bool) -> None:
    """As `multiply`, by the threads of the team at an address."""
    if not is_rounded:
        product_in_team(team, x, weight, out)
        return
    rounded = np.empty(x.shape, np.uint16)
    if x.shape[0] < _MANY_ROWS:
        _round(x, rounded, range(x.shape[0]))
    else:
        share(team, job_of(_round_part, (x.ctypes.data, rounded.ctypes.data, x.shape[0], x.shape[1])))
    product_in_team(team, rounded, weight, out)
    keep(rounded)


@njit(nogil=True, error_model="numpy")
def _round_part(x: int, rounded: int, num_rows: int, depth: int, part: int, num_parts: int) -> None:
    shape = num_rows, depth
    _round(
        array_at(x, shape, np.float32), array_at(rounded, shape, np.uint16), part_of(num_rows, part, num_parts),
    )  # fmt: skip


@njit(nogil=True, error_model="numpy")
def _round(x: Floats, rounded: npt.NDArray[np.uint16], rows: Any) -> None:
    """Round a range of rows to bfloat16."""
    for t in rows:
        for k in range(x.shape[1]):
            rounded[t, k] = narrow(x[t, k], rounded[t, k])


_COMPACT: WeakValueDictionary[tuple[int, tuple[int, ...]], npt.NDArray[np.uint16]] = WeakValueDictionary()
"""Weights in bfloat16 by address and shape of the original, so that models that share a weight share its copy too."""


def compact(weight: torch.Tensor) -> Weights | None:
    """Return a weight on the CPU `[N, K]` in the narrowest lossless form, or None if neither form fits.

    A float32 weight from a bfloat16 checkpoint is stored as bfloat16 again, which halves the memory traffic.
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
