"""The inner loop of matrix products: a few rows times four rows of weights, every sum in a vector register."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from specdec.runner.host.lanes import (
    FEATURES,
    FLOAT,
    HALF,
    HAS_BFLOAT16_PAIRS,
    INDEX,
    LANES,
    Kind,
    add_pairs,
    lanes,
    load_floats,
    load_pairs,
    multiply_add,
    pointer,
)
from specdec.runner.host.loops import loop
from specdec.runner.host.prefetch import emit_prefetch

TILE_WEIGHTS = 4
"""Rows of weights in a tile."""


MAX_TILE_ROWS = 6 if FEATURES.get("avx512f") else 3
"""Rows of a tile: four sums each in 32 or in 16 registers, with room for what is multiplied."""

_KINDS = {
    (types.float32, types.float32): Kind.FLOATS,
    (types.float32, types.uint16): Kind.WIDENED,
} | ({(types.uint16, types.uint16): Kind.BFLOATS} if HAS_BFLOAT16_PAIRS else {})
"""By the types of rows and weights; bfloat16 is held as uint16."""


def _tile(num_rows: int, *, is_first: bool) -> Callable[..., int]:
    """Return what multiplies `num_rows` rows with four rows of weights, for compiled code.

    It takes the arrays of rows and of weights (for their types only), then address and bytes per row of rows, weights and
    output, then the depth K and how many bytes ahead weights are prefetched; writes float32 sums `[num_rows, 4]`; and returns
    how many of the K numbers are in them: the caller adds the rest.

    Args:
        num_rows: rows of the tile.
        is_first: whether these weights are read for the first time, and so those ahead are to be prefetched.
    """

    def typed(
        context: Any, x: Any, weight: Any, rows: Any, rows_step: Any, columns: Any, columns_step: Any,
        out: Any, out_step: Any, depth: Any, ahead: Any,
    ) -> Any:  # fmt: skip
        kind = _KINDS.get((x.dtype, weight.dtype))

        def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            if kind is None:  # never reached: callers multiply what this processor can
                builder.call(
                    builder.module.declare_intrinsic("llvm.trap", (), ir.FunctionType(ir.VoidType(), [])), []
                )
                return ir.Constant(INDEX, 0)
            ahead = arguments[-1] if is_first else None
            return _emit(builder, kind, num_rows, *arguments[2:-1], ahead=ahead)

        return types.int64(x, weight, *[types.int64] * 8), codegen

    compiled: Callable[..., int] = intrinsic(typed)
    return compiled


def _emit(
    builder: Any, kind: Kind, num_rows: int, rows: Any, rows_step: Any, columns: Any, columns_step: Any,
    out: Any, out_step: Any, depth: Any, *, ahead: Any | None,
) -> Any:  # fmt: skip
    """Emit the loop over K, then the sums; see `_tile`."""
    whole = builder.and_(depth, ir.Constant(INDEX, -kind.step))

    def added(k: Any, sums: list[Any]) -> list[Any]:
        if ahead is not None:
            for j in range(TILE_WEIGHTS):
                address = pointer(builder, builder.add(columns, ahead), j, columns_step, k, _number(kind))
                emit_prefetch(builder, address)
        weights = [
            _load(builder, kind, columns, j, columns_step, k, kind is not Kind.FLOATS)
            for j in range(TILE_WEIGHTS)
        ]
        results = []
        for i in range(num_rows):
            numbers = _load(builder, kind, rows, i, rows_step, k, kind is Kind.BFLOATS)
            for j, weight in enumerate(weights):
                results.append(_multiply_add(builder, kind, numbers, weight, sums[i * TILE_WEIGHTS + j]))
        return results

    sums = loop(builder, ir.Constant(INDEX, 0), whole, kind.step, [0.0] * (num_rows * TILE_WEIGHTS), added)
    for i in range(num_rows):
        address = pointer(builder, out, i, out_step, ir.Constant(INDEX, 0), FLOAT, TILE_WEIGHTS)
        row = sums[i * TILE_WEIGHTS : (i + 1) * TILE_WEIGHTS]
        builder.store(_totals(builder, row), address, align=4)
    return whole


def _number(kind: Kind) -> Any:
    """Return the type that weights are stored in."""
    return FLOAT if kind is Kind.FLOATS else HALF


def _totals(builder: Any, vectors: list[Any]) -> Any:
    """Return the sums over the lanes of four vectors as one vector of four."""
    first, second, third, fourth = vectors
    blocks = range(0, LANES, 4)

    def folded(left: Any, right: Any, low: tuple[int, ...], high: tuple[int, ...]) -> Any:
        """Add two choices of lanes from each block of four; lanes 4 to 7 stand for those of `right`."""
        halves = (
            builder.shuffle_vector(
                left, right, lanes([b + i % 4 + LANES * (i // 4) for b in blocks for i in order])
            )
            for order in (low, high)
        )
        return builder.fadd(*halves)

    pairs = (
        folded(first, second, (0, 4, 1, 5), (2, 6, 3, 7)),
        folded(third, fourth, (0, 4, 1, 5), (2, 6, 3, 7)),
    )
    total = folded(*pairs, (0, 1, 4, 5), (2, 3, 6, 7))
    width = LANES
    while width > 4:
        width //= 2
        halves = (
            builder.shuffle_vector(total, total, lanes(range(start, start + width))) for start in (0, width)
        )
        total = builder.fadd(*halves)
    return total


def _load(builder: Any, kind: Kind, base: Any, row: int, step: Any, k: Any, is_half: bool) -> Any:
    """Load the next numbers of a row as what is multiplied."""
    if kind is Kind.BFLOATS:
        return load_pairs(builder, base, row, step, k)
    return load_floats(builder, base, row, step, k, is_half)


def _multiply_add(builder: Any, kind: Kind, numbers: Any, weights: Any, total: Any) -> Any:
    if kind is Kind.BFLOATS:
        return add_pairs(builder, numbers, weights, total)
    return multiply_add(builder, numbers, weights, total)


_FIRST_1, _FIRST_2, _FIRST_3, _FIRST_4, _FIRST_5, _FIRST_6 = (_tile(n, is_first=True) for n in range(1, 7))
_LATER_1, _LATER_2, _LATER_3, _LATER_4, _LATER_5, _LATER_6 = (_tile(n, is_first=False) for n in range(1, 7))


@njit(inline="always")
def row_tiles(
    x: Any, weight: Any, num_rows: int, rows: int, rows_step: int, columns: int, columns_step: int,
    out: int, out_step: int, depth: int, ahead: int,
) -> int:  # fmt: skip
    """Write the products of any number of rows with four rows of weights; a row's do not depend on the others.

    Args:
        x: the array of rows, float32 or uint16; for its type only.
        weight: the array of weights, likewise; both uint16 only where `HAS_BFLOAT16_PAIRS`.
        num_rows: rows to multiply.
        rows: address of the first.
        rows_step: bytes from a row to the next.
        columns: address of the first row of weights.
        columns_step: bytes from one to the next.
        out: address of the float32 output `[num_rows, 4]`.
        out_step: bytes from one of its rows to the next.
        depth: numbers of a row, K.
        ahead: bytes ahead of those being multiplied that weights are prefetched.

    Returns:
        how many of the K numbers are in the products; the caller adds the rest.
    """
    done, t = depth, 0
    while t < num_rows:
        groups = (num_rows - t + MAX_TILE_ROWS - 1) // MAX_TILE_ROWS
        count = (num_rows - t + groups - 1) // groups
        a, c = rows + t * rows_step, out + t * out_step
        if t == 0:
            if count == 1:
                done = _FIRST_1(x, weight, a, rows_step, columns, columns_step, c, out_step, depth, ahead)
            elif count == 2:
                done = _FIRST_2(x, weight, a, rows_step, columns, columns_step, c, out_step, depth, ahead)
            elif count == 3:
                done = _FIRST_3(x, weight, a, rows_step, columns, columns_step, c, out_step, depth, ahead)
            elif count == 4:
                done = _FIRST_4(x, weight, a, rows_step, columns, columns_step, c, out_step, depth, ahead)
            elif count == 5:
                done = _FIRST_5(x, weight, a, rows_step, columns, columns_step, c, out_step, depth, ahead)
            else:
                done = _FIRST_6(x, weight, a, rows_step, columns, columns_step, c, out_step, depth, ahead)
        elif count == 1:
            done = _LATER_1(x, weight, a, rows_step, columns, columns_step, c, out_step, depth, ahead)
        elif count == 2:
            done = _LATER_2(x, weight, a, rows_step, columns, columns_step, c, out_step, depth, ahead)
        elif count == 3:
            done = _LATER_3(x, weight, a, rows_step, columns, columns_step, c, out_step, depth, ahead)
        elif count == 4:
            done = _LATER_4(x, weight, a, rows_step, columns, columns_step, c, out_step, depth, ahead)
        elif count == 5:
            done = _LATER_5(x, weight, a, rows_step, columns, columns_step, c, out_step, depth, ahead)
        else:
            done = _LATER_6(x, weight, a, rows_step, columns, columns_step, c, out_step, depth, ahead)
        t += count
    return done
