"""Products with weights in blocks, see `BlockKind`: a block is unpacked in registers once for all rows of a pass.

Rows are whole numbers by block, see `split_rows`, and sums within a block are of integers: exact, and the same for a row alone
and among others. All kinds are one description; the code for each is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

from specdec_kernels.cpu.compiled.calls import Signature, address_of, by_address
from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.jobs import call_of, job_of
from specdec_kernels.cpu.compiled.math import narrow
from specdec_kernels.cpu.compiled.team import part_of, run_with_team, share
from specdec_kernels.cpu.loops.block_tile import Products, Weights, tile_at
from specdec_kernels.cpu.loops.digits import FACTORS, split_rows
from specdec_kernels.cpu.loops.lanes import LANES
from specdec_kernels.cpu.loops.memory import floats, keep
from specdec_kernels.cpu.loops.pointer import array_at
from specdec_runtime.interfaces.blocks import CHUNK, KINDS, TILE

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Table = npt.NDArray[np.int64]
SEGMENT = 4
"""Numbers of a segment: addresses of functions that multiply with it and widen it, and of its weights; its rows."""
_NAMES = tuple(KINDS)
_literal: Any = types.literal  # numba is not annotated
_SIGNATURE: Signature = (types.int64,) * 13
_multiply = by_address(_SIGNATURE)
_WIDEN_SIGNATURE: Signature = (types.int64,) * 5
_widen = by_address(_WIDEN_SIGNATURE)


def block_table(segments: Sequence[tuple[str, int, int]], num_digits: int) -> Table:
    """Return the table of rows of weights that are multiplied together.

    Args:
        segments: of each the kind, the address of its tiles and the number of its rows.
        num_digits: digits of the rows that they are multiplied with.
    """
    numbers = [len(segments)]
    for kind, address, num_rows in segments:
        mark, digits = _literal(_NAMES.index(kind)), _literal(num_digits)
        numbers.append(address_of(_multiply_tiles, (*_SIGNATURE[:-2], mark, digits)))
        numbers.append(address_of(_widen_tile, (*_WIDEN_SIGNATURE[:-1], mark)))
        numbers += [address, num_rows]
    return np.array(numbers)


@njit(nogil=True, error_model="numpy")
def product_of_blocks(team: int, x: Floats, table: int, num_digits: int, out: Floats) -> None:
    """Write `x @ weight.T` to `out`.

    Args:
        team: see `product_in_team`.
        x: `[T, K]`.
        table: address of the number of segments, and of `SEGMENT` numbers for each: rows of weights of a kind.
        num_digits: digits that the rows are split into; 1 rounds them to 8 bits.
        out: `[T, N]`, contiguous, written.
    """
    num_rows, depth = x.shape
    num_chunks = depth // CHUNK
    digits = np.empty((num_chunks, num_rows, num_digits | 1, CHUNK), np.int8)
    factors = np.empty((num_chunks, num_rows, FACTORS), np.float32)
    split_rows(team, x, num_digits, digits, factors)
    share(team, job_of(_part, (
        digits.ctypes.data, factors.ctypes.data, table, num_rows, depth, out.ctypes.data, out.shape[1], num_digits,
    )))  # fmt: skip
    keep(digits)
    keep(factors)


@njit(nogil=True, error_model="numpy")
def _part(
    digits: int, factors: int, table: int, num_rows: int, depth: int, out: int, num_out: int, num_digits: int, part: int,
    num_parts: int,
) -> None:  # fmt: skip
    """Multiply with a part of the tiles; takes addresses."""
    (num_segments,) = array_at(table, (1,), np.int64)
    segments = array_at(table + 8, (num_segments, SEGMENT), np.int64)
    num_tiles = 0
    for i in range(num_segments):
        num_tiles += (segments[i, 3] + TILE - 1) // TILE
    mine = part_of(num_tiles, part, num_parts)
    first_tile, first_out = 0, 0
    totals = floats(num_rows * TILE)
    for i in range(num_segments):
        own_tiles = (segments[i, 3] + TILE - 1) // TILE
        start, end = max(mine.start - first_tile, 0), min(mine.stop - first_tile, own_tiles)
        if start < end:
            _multiply(segments[i, 0], (
                segments[i, 2], start, end, segments[i, 3], digits, factors, num_rows, depth,
                totals.ctypes.data, out + 4 * first_out, num_out, 0, num_digits,
            ))  # fmt: skip
        first_tile += own_tiles
        first_out += segments[i, 3]
    keep(totals)


@njit(nogil=True, cache=True, error_model="numpy")
def multiply_blocks(team: int, x: Floats, table: int, num_digits: int, out: Floats) -> None:
    """As `product_of_blocks`, with the threads of a team that runs nothing else.

    Raises:
        MemoryError: if there is not enough for the digits.
    """
    run_with_team(team, call_of(product_of_blocks, (team, x, table, num_digits, out)))


@njit(nogil=True, error_model="numpy")
def look_up_blocks(tokens: Ints, table: int, factor: np.float32, out: Floats) -> None:
    """Write rows of weights, times a factor, to `out [T, K]`; the table has one segment."""
    depth = out.shape[1]
    segment = array_at(table + 8, (SEGMENT,), np.int64)
    tile = np.empty((depth, TILE), np.float32)
    for t in range(tokens.shape[0]):
        _widen(segment[1], (segment[2], tokens[t] // TILE, depth, tile.ctypes.data, 0))
        lane = tokens[t] % TILE
        for k in range(depth):
            out[t, k] = tile[k, lane] * factor


@njit(nogil=True, cache=True, error_model="numpy")
def widen_blocks(team: int, segment: int, first_tile: int, out: npt.NDArray[np.uint16]) -> None:
    """Write the weights of some tiles, rounded to bfloat16, to `out [K, N]`, N a multiple of `TILE`.

    Args:
        team: of threads that run nothing else.
        segment: address of its `SEGMENT` numbers in a table.
        first_tile: the first of these tiles.
        out: written.
    """
    depth, num_rows = out.shape
    arguments = segment, first_tile, depth, num_rows, out.ctypes.data
    run_with_team(team, call_of(_share_tiles, (team, *arguments)))
    keep(out)


@njit(nogil=True, error_model="numpy")
def _share_tiles(team: int, segment: int, first_tile: int, depth: int, num_rows: int, out: int) -> None:
    share(team, job_of(_widen_part, (segment, first_tile, depth, num_rows, out)))


@njit(nogil=True, error_model="numpy")
def _widen_part(
    segment: int, first_tile: int, depth: int, num_rows: int, out: int, part: int, num_parts: int
) -> None:
    numbers = array_at(segment, (SEGMENT,), np.int64)
    wide, tile = array_at(out, (depth, num_rows), np.uint16), np.empty((depth, TILE), np.float32)
    for index in part_of(num_rows // TILE, part, num_parts):
        _widen(numbers[1], (numbers[2], first_tile + index, depth, tile.ctypes.data, 0))
        for k in range(depth):
            for lane in range(TILE):
                wide[k, index * TILE + lane] = narrow(tile[k, lane], wide[k, index * TILE + lane])
    keep(tile)


@njit(nogil=True, cache=True, no_cpython_wrapper=True, error_model="numpy")
def _widen_tile(weight: int, tile: int, depth: int, out: int, kind: Any) -> None:
    """Write the weights of a tile to `out [K, TILE]`; takes addresses."""
    _widened(weight, tile, depth, out, kind)


@njit(nogil=True, cache=True, no_cpython_wrapper=True, error_model="numpy")
def _multiply_tiles(
    weight: int, start: int, end: int, num_weights: int, digits: int, factors: int, num_rows: int, depth: int,
    totals: int, out: int, num_out: int, kind: Any, num_digits: Any,
) -> None:  # fmt: skip
    """Multiply with a range of tiles, see `_tile`; the last one may have fewer rows than others."""
    for tile in range(start, end):
        _tile(weight, tile, digits, factors, num_rows, depth, totals, kind, num_digits)
        count = min(TILE, num_weights - tile * TILE)
        for t in range(num_rows):
            sums = array_at(totals + 4 * t * TILE, (count,), np.float32)
            place = array_at(out + 4 * (t * num_out + tile * TILE), (count,), np.float32)
            for i in range(count):
                place[i] = sums[i]


def _typed(
    context: Any, weight: Any, tile: Any, digits: Any, factors: Any, num_rows: Any, depth: Any, totals: Any, kind: Any,
    num_digits: Any,
) -> Any:  # fmt: skip
    """Write the products of rows with one tile to `totals [T, TILE]`; takes addresses."""
    what, count = KINDS[_NAMES[kind.literal_value]], num_digits.literal_value

    def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        weight, tile, digits, factors, num_rows, depth, totals, *_ = arguments
        place, num_blocks = tile_at(builder, what, weight, tile, depth)
        for lane in range(0, TILE, LANES):
            Products(builder, what, lane, count, digits, factors, num_rows, totals).emit(place, num_blocks)
        return target.get_dummy_value()

    return types.none(*[types.int64] * 7, kind, num_digits), codegen


_tile: Callable[..., None] = intrinsic(prefer_literal=True)(_typed)


def _typed_widened(context: Any, weight: Any, tile: Any, depth: Any, out: Any, kind: Any) -> Any:
    """Write the weights of a tile; see `_widen_tile`."""
    what = KINDS[_NAMES[kind.literal_value]]

    def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        weight, tile, depth, out, _ = arguments
        place, num_blocks = tile_at(builder, what, weight, tile, depth)
        for lane in range(0, TILE, LANES):
            Weights(builder, what, lane, out).emit(place, num_blocks)
        return target.get_dummy_value()

    return types.none(*[types.int64] * 4, kind), codegen


_widened: Callable[..., None] = intrinsic(prefer_literal=True)(_typed_widened)
