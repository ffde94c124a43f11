"""Products of a few rows with weights of 8 or 4 bits, which are bound by reading the weights once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.jobs import job_of
from specdec_kernels.cpu.compiled.math import widen
from specdec_kernels.cpu.compiled.team import part_of, share
from specdec_kernels.cpu.loops.lanes import (
    FLOAT,
    FLOATS,
    INDEX,
    LANES,
    WORD,
    lanes,
    load_floats,
    multiply_add,
    pointer,
)
from specdec_kernels.cpu.loops.loops import by_count, loop, next_count
from specdec_kernels.cpu.loops.pointer import array_at
from specdec_kernels.cpu.loops.tile import TILE_WEIGHTS, totals
from specdec_runtime.interfaces import QuantizedLinear

Floats = npt.NDArray[np.float32]
Packed = npt.NDArray[np.int8] | npt.NDArray[np.uint8]
"""Weights as in `QuantizedLinear.packed`."""
BLOCK = QuantizedLinear.BLOCK
ALIGNMENT = 64
_MAX_TILE_ROWS = 4
_BYTE = ir.IntType(8)
_WORDS = ir.VectorType(WORD, LANES)


def scales_offset(num_out: int, row_bytes: int) -> int:
    """Return the distance in bytes from packed weights `[num_out, row_bytes]` to their scales."""
    return -(-num_out * row_bytes // ALIGNMENT) * ALIGNMENT


@njit(nogil=True, error_model="numpy")
def product_quantized(team: int, x: Floats, weight: Packed, group: int, out: Floats) -> None:
    """Write `x @ weight.T` to `out`; every weight is read from memory only once.

    Args:
        team: address of the team whose threads multiply; see `make_team`.
        x: `[T, K]`.
        weight: `[N, K]` int8 or `[N, K / 2]` uint8. Their scales follow at `scales_offset`: float32 `[N]`, or
            bfloat16 `[N, K / group, 2]`, the least value of a group before its scale.
        group: weights of 4 bits that share a scale, a multiple of `BLOCK`.
        out: `[T, N]`, contiguous, written.
    """
    share(team, job_of(_part, (
        x.ctypes.data, weight.ctypes.data, weight.dtype, weight.shape[1], group, out.ctypes.data, x.shape[0], x.shape[1],
        weight.shape[0],
    )))  # fmt: skip


@njit(fastmath=True, nogil=True, error_model="numpy")
def _part(
    rows: int, columns: int, kind: Any, row_bytes: int, group: int, results: int, num_rows: int, depth: int, num_out: int,
    part: int, num_parts: int,
) -> None:  # fmt: skip
    """Multiply with a part of the weights; takes addresses."""
    x, weight = array_at(rows, (num_rows, depth), np.float32), array_at(columns, (num_out, row_bytes), kind)
    out = array_at(results, (num_rows, num_out), np.float32)
    scales = columns + (num_out * row_bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    scales_step, num_blocks = _scale_bytes(weight, depth, group), (num_out + TILE_WEIGHTS - 1) // TILE_WEIGHTS
    for block in part_of(num_blocks, part, num_parts):
        n = block * TILE_WEIGHTS
        count = min(TILE_WEIGHTS, num_out - n)
        done = 0
        if count == TILE_WEIGHTS:
            t = 0
            while t < num_rows:
                together = next_count(num_rows - t, _MAX_TILE_ROWS)
                done = _tile(
                    weight, together, rows + t * depth * 4, depth * 4, columns + n * row_bytes, row_bytes,
                    scales + n * scales_step, scales_step, group, results + (t * num_out + n) * 4, num_out * 4, depth,
                )  # fmt: skip
                t += together
        if done < depth:
            for t in range(num_rows):
                for i in range(n, n + count):
                    rest = _dot(x[t], weight[i], done, scales + i * scales_step, group)
                    out[t, i] = rest + (out[t, i] if done else np.float32(0.0))


def _scale_bytes(weight: Any, depth: int, group: int) -> int:
    """Return the bytes of a row's scales."""
    raise NotImplementedError("compiled code only")


def _dot(x: Any, weight: Any, start: int, scales: int, group: int) -> Any:
    """Return the dot product of a row `[K]` and a packed row from number `start` on."""
    raise NotImplementedError("compiled code only")


@overload(_scale_bytes, strict=False)
def _overload_scale_bytes(weight: Any, depth: Any, group: Any) -> Callable[..., int]:
    if weight.dtype == types.int8:
        return lambda weight, depth, group: 4
    return lambda weight, depth, group: 4 * (depth // group)


@overload(_dot, strict=False)
def _overload_dot(x: Any, weight: Any, start: Any, scales: Any, group: Any) -> Callable[..., Any]:
    return _dot_bytes if weight.dtype == types.int8 else _dot_halves


def _dot_bytes(x: Any, weight: Any, start: int, scales: int, group: int) -> Any:
    total = np.float32(0.0)
    for k in range(start, x.shape[0]):
        total += np.float32(weight[k]) * x[k]
    return total * array_at(scales, (1,), np.float32)[0]


def _dot_halves(x: Any, weight: Any, start: int, scales: int, group: int) -> Any:
    total = np.float32(0.0)
    by_group = array_at(scales, (x.shape[0] // group, 2), np.uint16)
    for k in range(start, x.shape[0]):
        byte = weight[k // BLOCK * (BLOCK // 2) + k % (BLOCK // 2)]
        number = np.float32(byte >> 4 if k % BLOCK >= BLOCK // 2 else byte & 15)
        total += (number * widen(by_group[k // group, 1]) + widen(by_group[k // group, 0])) * x[k]
    return total


def _typed(
    context: Any, weight: Any, count: Any, rows: Any, rows_step: Any, columns: Any, columns_step: Any, scales: Any,
    scales_step: Any, group: Any, out: Any, out_step: Any, depth: Any,
) -> Any:  # fmt: skip
    """Multiply up to `_MAX_TILE_ROWS` rows with four rows of packed weights; returns how many of the K numbers are included."""
    emit: Callable[..., None] = _emit_bytes if weight.dtype == types.int8 else _emit_halves

    def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, count, *places, depth = arguments
        step = LANES if emit is _emit_bytes else BLOCK
        whole = builder.and_(depth, ir.Constant(INDEX, -step))
        by_count(builder, count, _MAX_TILE_ROWS, lambda n: emit(builder, n, *places, whole))
        return whole

    return types.int64(weight, *[types.int64] * 11), codegen


_tile: Callable[..., int] = intrinsic(_typed)


def _emit_bytes(
    builder: Any, num_rows: int, rows: Any, rows_step: Any, columns: Any, columns_step: Any, scales: Any,
    scales_step: Any, group: Any, out: Any, out_step: Any, whole: Any,
) -> None:  # fmt: skip
    """Emit one loop per row of weights, so that memory is read sequentially; each row has one scale."""
    chains = max(1, 4 // num_rows)  # independent sums of a row, which hide the latency of additions
    size = LANES * chains
    most = builder.mul(builder.udiv(whole, ir.Constant(INDEX, size)), ir.Constant(INDEX, size))
    sums: list[list[Any]] = []
    for j in range(TILE_WEIGHTS):

        def added(k: Any, totals: list[Any], times: int, j: int = j) -> list[Any]:
            results = list(totals)
            for n in range(times):
                place = builder.add(k, ir.Constant(INDEX, n * LANES))
                packed = _load_bytes(builder, columns, j, columns_step, place)
                weights = builder.sitofp(builder.sext(packed, _WORDS), FLOATS)
                for i in range(num_rows):
                    numbers = load_floats(builder, rows, i, rows_step, place, is_half=False)
                    results[n * num_rows + i] = multiply_add(
                        builder, numbers, weights, results[n * num_rows + i]
                    )
            return results

        start = [0.0] * (num_rows * chains)
        long = loop(builder, ir.Constant(INDEX, 0), most, size, start, partial(added, times=chains))
        ends = loop(builder, most, whole, LANES, long, partial(added, times=1))
        sums.append([_summed(builder, ends[i::num_rows]) for i in range(num_rows)])
    factors = builder.load(
        pointer(builder, scales, 0, scales_step, ir.Constant(INDEX, 0), FLOAT, TILE_WEIGHTS), align=4
    )
    store(builder, sums, out, out_step, factors)


def _emit_halves(
    builder: Any, num_rows: int, rows: Any, rows_step: Any, columns: Any, columns_step: Any, scales: Any,
    scales_step: Any, group: Any, out: Any, out_step: Any, whole: Any,
) -> None:  # fmt: skip
    """Emit one loop per row of weights; each group of columns has a scale."""
    sums: list[list[Any]] = []
    half, turns = BLOCK // 2, 2 if num_rows == 1 else 1
    size = BLOCK * turns
    most = builder.mul(builder.udiv(whole, ir.Constant(INDEX, size)), ir.Constant(INDEX, size))
    for j in range(TILE_WEIGHTS):

        def added(first: Any, totals: list[Any], times: int, j: int = j) -> list[Any]:
            results = list(totals)
            for turn in range(times):
                k = builder.add(first, ir.Constant(INDEX, turn * BLOCK))
                scale, least = _load_scale(builder, scales, j, scales_step, _group_of(builder, k, group))
                for part in range(half // LANES):
                    byte = builder.add(
                        builder.lshr(k, ir.Constant(INDEX, 1)), ir.Constant(INDEX, part * LANES)
                    )
                    packed = builder.zext(_load_bytes(builder, columns, j, columns_step, byte), _WORDS)
                    lower = builder.and_(packed, ir.Constant(_WORDS, [15] * LANES))
                    upper = builder.lshr(packed, ir.Constant(_WORDS, [4] * LANES))
                    for side, number in enumerate((lower, upper)):
                        weights = multiply_add(builder, builder.sitofp(number, FLOATS), scale, least)
                        place = builder.add(k, ir.Constant(INDEX, side * half + part * LANES))
                        for i in range(num_rows):
                            numbers = load_floats(builder, rows, i, rows_step, place, is_half=False)
                            chain = (2 * turn + side) * num_rows + i
                            results[chain] = multiply_add(builder, numbers, weights, results[chain])
            return results

        start = [0.0] * (2 * turns * num_rows)
        long = loop(builder, ir.Constant(INDEX, 0), most, size, start, partial(added, times=turns))
        ends = loop(builder, most, whole, BLOCK, long, partial(added, times=1))
        sums.append([_summed(builder, ends[i::num_rows]) for i in range(num_rows)])
    store(builder, sums, out, out_step, None)


def _group_of(builder: Any, k: Any, group: Any) -> Any:
    """Return the group of column `k`; groups are a power of two, so that nothing is divided."""
    return builder.lshr(k, builder.cttz(group, ir.Constant(ir.IntType(1), 1)))


def _load_bytes(builder: Any, base: Any, row: int, step: Any, k: Any) -> Any:
    """Load one byte per lane, starting at byte `k` of row `row`."""
    address = builder.add(builder.add(base, builder.mul(ir.Constant(INDEX, row), step)), k)
    return builder.load(builder.inttoptr(address, ir.VectorType(_BYTE, LANES).as_pointer()), align=1)


def _load_scale(builder: Any, base: Any, row: int, step: Any, index: Any) -> tuple[Any, Any]:
    """Return a group's scale and its least value, bfloat16 both, in every lane."""
    one = builder.load(pointer(builder, base, row, step, index, WORD), align=4)
    first = builder.insert_element(ir.Constant(_WORDS, ir.Undefined), one, ir.Constant(WORD, 0))
    both = builder.shuffle_vector(first, first, lanes([0] * LANES))
    scale = builder.bitcast(builder.and_(both, ir.Constant(_WORDS, [0xFFFF0000] * LANES)), FLOATS)
    return scale, builder.bitcast(builder.shl(both, ir.Constant(_WORDS, [16] * LANES)), FLOATS)


def _summed(builder: Any, registers: list[Any]) -> Any:
    """Return the sum of registers."""
    total = registers[0]
    for register in registers[1:]:
        total = builder.fadd(total, register)
    return total


def store(builder: Any, sums: list[list[Any]], out: Any, out_step: Any, factors: Any | None) -> None:
    """Store the lane sums, by row of weights and row of `x`, times `factors` of the rows of weights."""
    for i in range(len(sums[0])):
        four = totals(builder, [row[i] for row in sums])
        if factors is not None:
            four = builder.fmul(four, factors)
        address = pointer(builder, out, i, out_step, ir.Constant(INDEX, 0), FLOAT, TILE_WEIGHTS)
        builder.store(four, address, align=4)
