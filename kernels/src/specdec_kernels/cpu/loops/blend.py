"""Weighted sums of cached rows: attention's product with the values, every sum in a vector register."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from specdec_kernels.cpu.compiled.math import widen
from specdec_kernels.cpu.compiled.target import FEATURES
from specdec_kernels.cpu.loops.lanes import (
    FLOAT,
    INDEX,
    LANES,
    load_floats,
    multiply_add,
    pointer,
    splat,
)
from specdec_kernels.cpu.loops.loops import by_count, loop, next_count

_MAX_ROWS = 6 if FEATURES.get("avx512f") else 2
"""Sums held at a time: four registers each, of 32 or of 16 registers."""
_WIDE, _NARROW = 4 * LANES, LANES
"""Columns of a sum held at a time; the narrow width is for the remainder of a row."""


def _blend(most_rows: int, width: int) -> Callable[..., None]:
    """Return an intrinsic that sums `width` columns for up to `most_rows` rows of weights.

    Its arguments are the array of values (for its type only), the number of rows, address and bytes per row of weights,
    values and output, and the number of values L. It writes float32 sums `[rows, width]`.
    """

    def typed(
        context: Any, value: Any, count: Any, weights: Any, weights_step: Any, values: Any, values_step: Any,
        out: Any, out_step: Any, length: Any,
    ) -> Any:  # fmt: skip
        is_half = value.dtype == types.uint16

        def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, count, *places = arguments
            by_count(builder, count, most_rows, lambda n: _emit(builder, n, width // LANES, is_half, *places))
            return target.get_dummy_value()

        return types.void(value, *[types.int64] * 8), codegen

    compiled: Callable[..., None] = intrinsic(typed)
    return compiled


def _emit(
    builder: Any, num_rows: int, num_vectors: int, is_half: bool, weights: Any, weights_step: Any, values: Any,
    values_step: Any, out: Any, out_step: Any, length: Any,
) -> None:  # fmt: skip
    """Emit the loop over L; see `_blend`."""
    zero = ir.Constant(INDEX, 0)

    def added(j: Any, sums: list[Any]) -> list[Any]:
        row = builder.add(values, builder.mul(j, values_step))
        vectors = [
            load_floats(builder, row, 0, values_step, ir.Constant(INDEX, c * LANES), is_half)
            for c in range(num_vectors)
        ]
        results = []
        for i in range(num_rows):
            weight = splat(
                builder, builder.load(pointer(builder, weights, i, weights_step, j, FLOAT), align=4)
            )
            for c, vector in enumerate(vectors):
                results.append(multiply_add(builder, weight, vector, sums[i * num_vectors + c]))
        return results

    sums = loop(builder, zero, length, 1, [0.0] * (num_rows * num_vectors), added)
    for number, total in enumerate(sums):
        i, c = divmod(number, num_vectors)
        place = pointer(builder, out, i, out_step, ir.Constant(INDEX, c * LANES), FLOAT, LANES)
        builder.store(total, place, align=4)


_blend_wide, _blend_narrow = _blend(_MAX_ROWS, _WIDE), _blend(1, _NARROW)


@njit(inline="always")
def row_blends(weights: Any, values: Any, start: int, head: int, length: int, out: Any) -> None:
    """Write `weights[:, :L] @ values[start : start + L, head]` to `out`; a row's sums do not depend on the others.

    Values are added one after another; a weight of 0 does not change a sum, unless the value is NaN or infinite.

    Args:
        weights: `[n, W]` float32, rows contiguous.
        values: `[num_slots, Hkv, D]` float32 or the bits of bfloat16, contiguous.
        start: slot of the first value.
        head: key-value head.
        length: L, at most W.
        out: `[n, D]` float32, contiguous, written.
    """
    num_rows, weights_step = weights.shape[0], weights.strides[0]
    size = out.shape[1]
    step = values.strides[0]
    first = values.ctypes.data + start * step + head * values.strides[1]
    w, o = weights.ctypes.data, out.ctypes.data
    d = 0
    while d + _WIDE <= size:
        a, t = first + d * values.itemsize, 0
        while t < num_rows:
            count = next_count(num_rows - t, _MAX_ROWS)
            b, c = w + t * weights_step, o + (t * size + d) * 4
            _blend_wide(values, count, b, weights_step, a, step, c, size * 4, length)
            t += count
        d += _WIDE
    while d + _NARROW <= size:
        for t in range(num_rows):
            _blend_narrow(
                values, 1, w + t * weights_step, weights_step, first + d * values.itemsize, step,
                o + (t * size + d) * 4, size * 4, length,
            )  # fmt: skip
        d += _NARROW
    for t in range(num_rows):
        for e in range(d, size):
            out[t, e] = 0.0
        for j in range(length):
            for e in range(d, size):
                out[t, e] += weights[t, j] * widen(values[start + j, head, e])
