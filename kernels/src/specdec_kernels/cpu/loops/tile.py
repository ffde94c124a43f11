"""The inner loop of matrix products: a few rows times four rows of weights, every sum in a vector register."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from specdec_kernels.cpu.compiled.target import FEATURES
from specdec_kernels.cpu.loops.lanes import (
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
from specdec_kernels.cpu.loops.loops import by_count, loop, next_count
from specdec_kernels.cpu.loops.prefetch import emit_prefetch

TILE_WEIGHTS = 4
"""Rows of weights in a tile."""


MAX_TILE_ROWS = 6 if FEATURES.get("avx512f") else 3
"""Rows of a tile: four sums per row in 32 or 16 registers, with registers left for the factors."""

_UNROLLED = 6
"""Unrolled steps in the loop of `_in_turn`; 1 and 2 are slower, 9 is the same."""

_KINDS = {
    (types.float32, types.float32): Kind.FLOATS,
    (types.float32, types.uint16): Kind.WIDENED,
} | ({(types.uint16, types.uint16): Kind.BFLOATS} if HAS_BFLOAT16_PAIRS else {})
"""Kind by the types of rows and weights; bfloat16 is stored as uint16."""


def _tile(*, is_first: bool) -> Callable[..., int]:
    """Return an intrinsic that multiplies up to `MAX_TILE_ROWS` rows with four rows of weights.

    Its arguments are the arrays of rows and of weights (for their types only), the number of rows, address and bytes per row
    of rows, weights and output, the depth K, and the prefetch distance of weights in bytes. It writes float32 sums
    `[rows, 4]` and returns how many of the K numbers they include; the caller adds the rest.

    Args:
        is_first: whether these weights are read for the first time, so that later ones must be prefetched.
    """

    def typed(
        context: Any, x: Any, weight: Any, count: Any, rows: Any, rows_step: Any, columns: Any, columns_step: Any,
        out: Any, out_step: Any, depth: Any, ahead: Any,
    ) -> Any:  # fmt: skip
        kind = _KINDS.get((x.dtype, weight.dtype))

        def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            if kind is None:  # unreachable: callers only use kinds that this processor supports
                builder.call(
                    builder.module.declare_intrinsic("llvm.trap", (), ir.FunctionType(ir.VoidType(), [])), []
                )
                return ir.Constant(INDEX, 0)
            _, _, count, *places, depth, ahead = arguments
            whole = builder.and_(depth, ir.Constant(INDEX, -kind.step))
            places, ahead = [*places, whole], ahead if is_first else None
            by_count(builder, count, MAX_TILE_ROWS, lambda n: _emit(builder, kind, n, ahead, *places))
            return whole

        return types.int64(x, weight, *[types.int64] * 9), codegen

    compiled: Callable[..., int] = intrinsic(typed)
    return compiled


def _emit(
    builder: Any, kind: Kind, num_rows: int, ahead: Any | None, rows: Any, rows_step: Any, columns: Any,
    columns_step: Any, out: Any, out_step: Any, whole: Any,
) -> None:  # fmt: skip
    """Emit the loops over K up to `whole`, then the sums; see `_tile`. The order of additions is always the same."""

    def number(i: int, k: Any) -> Any:
        return _load(builder, kind, rows, i, rows_step, k, kind is Kind.BFLOATS)

    def weight(j: int, k: Any) -> Any:
        return _load(builder, kind, columns, j, columns_step, k, kind is not Kind.FLOATS)

    def prefetch(j: int, k: Any) -> None:
        emit_prefetch(
            builder, pointer(builder, builder.add(columns, ahead), j, columns_step, k, _number(kind))
        )

    def multiplied(numbers: Any, weights: Any, total: Any) -> Any:
        return _multiply_add(builder, kind, numbers, weights, total)

    if ahead is not None and num_rows == 1:
        sums = _in_turn(builder, kind, whole, number, weight, multiplied)
    else:
        sums = _side_by_side(
            builder,
            kind,
            num_rows,
            whole,
            number,
            weight,
            multiplied,
            prefetch if ahead is not None else None,
        )
    for i in range(num_rows):
        address = pointer(builder, out, i, out_step, ir.Constant(INDEX, 0), FLOAT, TILE_WEIGHTS)
        row = sums[i * TILE_WEIGHTS : (i + 1) * TILE_WEIGHTS]
        builder.store(totals(builder, row), address, align=4)


def _side_by_side(
    builder: Any,
    kind: Kind,
    num_rows: int,
    whole: Any,
    number: Callable[[int, Any], Any],
    weight: Callable[[int, Any], Any],
    multiplied: Callable[[Any, Any, Any], Any],
    prefetch: Callable[[int, Any], None] | None,
) -> list[Any]:
    """Emit one loop for all four rows of weights, which loads each part of `x` once for all of them; returns the sums."""

    def added(k: Any, sums: list[Any]) -> list[Any]:
        if prefetch is not None:
            for j in range(TILE_WEIGHTS):
                prefetch(j, k)
        weights = [weight(j, k) for j in range(TILE_WEIGHTS)]
        results = []
        for i in range(num_rows):
            numbers = number(i, k)
            for j in range(TILE_WEIGHTS):
                results.append(multiplied(numbers, weights[j], sums[i * TILE_WEIGHTS + j]))
        return results

    return loop(builder, ir.Constant(INDEX, 0), whole, kind.step, [0.0] * (num_rows * TILE_WEIGHTS), added)


def _in_turn(
    builder: Any,
    kind: Kind,
    whole: Any,
    number: Callable[[int, Any], Any],
    weight: Callable[[int, Any], Any],
    multiplied: Callable[[Any, Any, Any], Any],
) -> list[Any]:
    """Emit one loop per row of weights, for one row of `x`, so that memory is read sequentially; returns the sums.

    For such reads the hardware prefetcher is faster than explicit prefetching: the products of SmolLM2-135M in bfloat16 take
    8.3 ms instead of 9.6, where summing as many bytes takes 7.8 (2 cores of an EPYC of Zen 5, variants interleaved). Two rows
    take 8.7 instead of 9.6, but a quarter more if the weights are in a cache; one row takes the same there.
    """
    size = kind.step * _UNROLLED
    most = builder.mul(builder.udiv(whole, ir.Constant(INDEX, size)), ir.Constant(INDEX, size))
    sums = []
    for j in range(TILE_WEIGHTS):

        def added(k: Any, total: list[Any], times: int, j: int = j) -> list[Any]:
            for n in range(times):
                place = builder.add(k, ir.Constant(INDEX, n * kind.step))
                total = [multiplied(number(0, place), weight(j, place), *total)]
            return total

        total = loop(builder, ir.Constant(INDEX, 0), most, size, [0.0], partial(added, times=_UNROLLED))
        sums += loop(builder, most, whole, kind.step, total, partial(added, times=1))
    return sums


def _number(kind: Kind) -> Any:
    """Return the type that weights are stored in."""
    return FLOAT if kind is Kind.FLOATS else HALF


def totals(builder: Any, vectors: list[Any]) -> Any:
    """Return the lane sums of four vectors as one vector of four."""
    first, second, third, fourth = vectors
    blocks = range(0, LANES, 4)

    def folded(left: Any, right: Any, low: tuple[int, ...], high: tuple[int, ...]) -> Any:
        """Add two selections of lanes from each block of four; lanes 4 to 7 denote those of `right`."""
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
    """Load the next numbers of a row in the form that is multiplied."""
    if kind is Kind.BFLOATS:
        return load_pairs(builder, base, row, step, k)
    return load_floats(builder, base, row, step, k, is_half)


def _multiply_add(builder: Any, kind: Kind, numbers: Any, weights: Any, total: Any) -> Any:
    if kind is Kind.BFLOATS:
        return add_pairs(builder, numbers, weights, total)
    return multiply_add(builder, numbers, weights, total)


_first_tile, _later_tile = _tile(is_first=True), _tile(is_first=False)


@njit(inline="always")
def row_tiles(
    x: Any, weight: Any, num_rows: int, rows: int, rows_step: int, columns: int, columns_step: int,
    out: int, out_step: int, depth: int, ahead: int,
) -> int:  # fmt: skip
    """Write the products of any number of rows with four rows of weights; a row's result does not depend on other rows.

    Args:
        x: the array of rows, float32 or uint16; for its type only.
        weight: the array of weights, likewise; both may be uint16 only if `HAS_BFLOAT16_PAIRS`.
        num_rows: number of rows to multiply.
        rows: address of the first row.
        rows_step: bytes from one row to the next.
        columns: address of the first row of weights.
        columns_step: bytes from one row of weights to the next.
        out: address of the float32 output `[num_rows, 4]`.
        out_step: bytes from one of its rows to the next.
        depth: numbers per row, K.
        ahead: prefetch distance of weights, in bytes.

    Returns:
        how many of the K numbers the products include; the caller adds the rest.
    """
    done, t = depth, 0
    while t < num_rows:
        count = next_count(num_rows - t, MAX_TILE_ROWS)
        a, c = rows + t * rows_step, out + t * out_step
        if t == 0:
            done = _first_tile(
                x, weight, count, a, rows_step, columns, columns_step, c, out_step, depth, ahead
            )
        else:
            done = _later_tile(
                x, weight, count, a, rows_step, columns, columns_step, c, out_step, depth, ahead
            )
        t += count
    return done
