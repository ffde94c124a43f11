"""Products of a few rows with weights of 4 bits where the processor multiplies bytes and adds four products each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.jobs import job_of
from specdec_kernels.cpu.compiled.target import FEATURES
from specdec_kernels.cpu.compiled.team import part_of, share
from specdec_kernels.cpu.loops.lanes import (
    FLOATS,
    INDEX,
    LANES,
    WORD,
    declared,
    lanes,
    load_floats,
    multiply_add,
    splat,
)
from specdec_kernels.cpu.loops.loops import by_count, loop, next_count
from specdec_kernels.cpu.loops.memory import keep
from specdec_kernels.cpu.loops.prefetch import emit_prefetch
from specdec_kernels.cpu.loops.quantized import ALIGNMENT, store
from specdec_kernels.cpu.loops.rounded_rows import BLOCK, REGISTER, UNIT, round_rows
from specdec_kernels.cpu.loops.tile import TILE_WEIGHTS

Floats = npt.NDArray[np.float32]
HAS_BYTE_SUMS = bool(FEATURES.get("avx512vnni")) and LANES == 16 and binding.llvm_version_info[0] >= 22
"""Whether this processor multiplies bytes and adds four products each in an integer of 32 bits (AVX512_VNNI)."""
_MAX_TILE_ROWS = 4
_BYTES_AHEAD = 4096
"""Distance at which weights are prefetched."""
_BYTE = ir.IntType(8)
_BYTES, _WORDS = ir.VectorType(_BYTE, REGISTER), ir.VectorType(WORD, LANES)


@njit(nogil=True, error_model="numpy")
def product_rounded(team: int, x: Floats, weight: npt.NDArray[np.uint8], group: int, out: Floats) -> None:
    """Write `x @ weight.T` to `out`, with `x` rounded to 8 bits, see `round_rows`; needs `HAS_BYTE_SUMS`.

    Every weight is read from memory only once; a row's result does not depend on how many rows there are.

    Args:
        team: see `product_quantized`.
        x: `[T, K]`.
        weight: `[N, K / 2]`, N at least `TILE_WEIGHTS`; see `product_quantized`. `ALIGNMENT` bytes behind the scales are read
            too.
        group: see `product_quantized`.
        out: `[T, N]`, contiguous, written.
    """
    num_rows, depth = x.shape
    num_units = (depth + UNIT - 1) // UNIT
    numbers = np.empty((num_rows, num_units, UNIT), np.int8)
    scales = np.empty((num_rows, num_units, LANES), np.float32)
    sums = np.empty((num_rows, num_units, LANES), np.float32)
    round_rows(x, numbers, scales, sums)
    share(team, job_of(_part, (
        numbers.ctypes.data, scales.ctypes.data, sums.ctypes.data, weight.ctypes.data, group, out.ctypes.data, num_rows, depth,
        weight.shape[0],
    )))  # fmt: skip
    keep(numbers)
    keep(scales)
    keep(sums)


@njit(nogil=True, error_model="numpy")
def _part(
    numbers: int, row_scales: int, row_sums: int, weight: int, group: int, out: int, num_rows: int, depth: int, num_out: int,
    part: int, num_parts: int,
) -> None:  # fmt: skip
    """Multiply with a part of the weights; takes addresses."""
    num_units, row_bytes = (depth + UNIT - 1) // UNIT, depth // 2
    scales = weight + (num_out * row_bytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    scales_step, num_blocks = 4 * (depth // group), (num_out + TILE_WEIGHTS - 1) // TILE_WEIGHTS
    for block in part_of(num_blocks, part, num_parts):
        n = min(
            block * TILE_WEIGHTS, num_out - TILE_WEIGHTS
        )  # the last tile may repeat what the one before writes
        t = 0
        while t < num_rows:
            together = next_count(num_rows - t, _MAX_TILE_ROWS)
            lane = t * num_units * LANES * 4
            _tile(
                together, numbers + t * num_units * UNIT, num_units * UNIT, row_scales + lane, row_sums + lane,
                num_units * LANES * 4, weight + n * row_bytes, row_bytes, scales + n * scales_step, scales_step, group,
                out + (t * num_out + n) * 4, num_out * 4, depth,
            )  # fmt: skip
            t += together


def _typed(
    context: Any, count: Any, rows: Any, rows_step: Any, row_scales: Any, row_sums: Any, lanes_step: Any, columns: Any,
    columns_step: Any, scales: Any, scales_step: Any, group: Any, out: Any, out_step: Any, depth: Any,
) -> Any:  # fmt: skip
    """Multiply up to `_MAX_TILE_ROWS` rounded rows with four rows of weights; takes addresses and bytes per row."""

    def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        count, *places = arguments
        by_count(builder, count, _MAX_TILE_ROWS, lambda n: _emit(builder, n, *places))
        return target.get_dummy_value()

    return types.none(*[types.int64] * 14), codegen


_tile: Callable[..., None] = intrinsic(_typed)


def _emit(
    builder: Any, num_rows: int, rows: Any, rows_step: Any, row_scales: Any, row_sums: Any, lanes_step: Any, columns: Any,
    columns_step: Any, scales: Any, scales_step: Any, group: Any, out: Any, out_step: Any, depth: Any,
) -> None:  # fmt: skip
    """Emit one loop per row of weights. A lane adds numbers of one block, which have one scale and one least value."""
    zero = ir.Constant(INDEX, 0)
    whole = builder.and_(depth, ir.Constant(INDEX, -UNIT))
    shift = builder.cttz(group, ir.Constant(ir.IntType(1), 1))  # groups are a power of two
    starts = ir.Constant(_WORDS, [lane * UNIT // LANES // BLOCK * BLOCK for lane in range(LANES)])
    places = builder.lshr(starts, splat(builder, builder.trunc(shift, WORD)))
    ends = []
    for j in range(TILE_WEIGHTS):
        row = _at(builder, columns, j, columns_step, zero)
        words = _at(builder, scales, j, scales_step, zero)

        def added(k: Any, totals: list[Any], is_end: bool, row: Any = row, words: Any = words) -> list[Any]:
            packed = _load(builder, builder.add(row, builder.lshr(k, ir.Constant(INDEX, 1))), is_ahead=True)
            lower = builder.and_(packed, ir.Constant(_BYTES, [15] * REGISTER))
            upper = builder.lshr(packed, ir.Constant(_BYTES, [4] * REGISTER))
            word = builder.add(words, builder.shl(builder.lshr(k, shift), ir.Constant(INDEX, 2)))
            both = _spread(builder, word, places)
            if is_end:  # behind the row is whatever comes next
                left = splat(builder, builder.trunc(builder.sub(depth, k), WORD))
                both = builder.select(builder.icmp_signed("<", starts, left), both, _words(0))
            scale = builder.bitcast(builder.and_(both, _words(0xFFFF0000)), FLOATS)
            least = builder.bitcast(builder.shl(both, _words(16)), FLOATS)
            lane, results = builder.lshr(k, ir.Constant(INDEX, (UNIT // LANES).bit_length() - 1)), []
            for i in range(num_rows):
                place = _at(builder, rows, i, rows_step, k)
                dot = _add_bytes(builder, _words(0), lower, _load(builder, place))
                second = _load(builder, builder.add(place, ir.Constant(INDEX, REGISTER)))
                dot = builder.sitofp(_add_bytes(builder, dot, upper, second), FLOATS)
                row_scale = load_floats(builder, row_scales, i, lanes_step, lane, is_half=False)
                row_sum = load_floats(builder, row_sums, i, lanes_step, lane, is_half=False)
                results.append(multiply_add(builder, dot, builder.fmul(scale, row_scale), totals[2 * i]))
                results.append(multiply_add(builder, least, row_sum, totals[2 * i + 1]))
            return results

        long = loop(builder, zero, whole, UNIT, [0.0] * (2 * num_rows), partial(added, is_end=False))
        last = loop(builder, whole, depth, UNIT, long, partial(added, is_end=True))
        ends.append([builder.fadd(last[2 * i], last[2 * i + 1]) for i in range(num_rows)])
    store(builder, ends, out, out_step, None)


def _add_bytes(builder: Any, totals: Any, unsigned: Any, signed: Any) -> Any:
    """Return integers plus four products of bytes each."""
    name = f"llvm.x86.avx512.vpdpbusd.{32 * LANES}"
    return builder.call(declared(builder, name, _WORDS, [_WORDS, _BYTES, _BYTES]), [totals, unsigned, signed])


def _spread(builder: Any, address: Any, places: Any) -> Any:
    """Return, in each lane, the one of the four words at an address that `places` says."""
    four = builder.load(builder.inttoptr(address, ir.VectorType(WORD, 4).as_pointer()), align=4)
    wide = builder.shuffle_vector(four, four, lanes([0, 1, 2, 3] * (LANES // 4)))
    function = declared(builder, f"llvm.x86.avx512.permvar.si.{32 * LANES}", _WORDS, [_WORDS, _WORDS])
    return builder.call(function, [wide, places])


def _load(builder: Any, address: Any, is_ahead: bool = False) -> Any:
    """Load a register of bytes, and prefetch later ones if `is_ahead`."""
    if is_ahead:
        ahead = builder.add(address, ir.Constant(INDEX, _BYTES_AHEAD))
        emit_prefetch(builder, builder.inttoptr(ahead, _BYTE.as_pointer()))
    return builder.load(builder.inttoptr(address, _BYTES.as_pointer()), align=1)


def _at(builder: Any, base: Any, row: int, step: Any, offset: Any) -> Any:
    """Return the address of a byte of a row."""
    return builder.add(builder.add(base, builder.mul(ir.Constant(INDEX, row), step)), offset)


def _words(word: int) -> Any:
    return ir.Constant(_WORDS, [word] * LANES)
