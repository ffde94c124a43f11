"""Products with weights in blocks, see `BlockKind`: a block is unpacked in registers once for all rows of a pass.

Rows are whole numbers by block, see `split_rows`, and sums within a block are of integers: exact, and the same for a row alone
and among others. All kinds are one description; the code for each is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from specdec_kernels.cpu.compiled.calls import Signature, address_of, by_address
from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.jobs import call_of, job_of
from specdec_kernels.cpu.compiled.team import part_of, run_with_team, share
from specdec_kernels.cpu.loops.digits import FACTORS, split_rows
from specdec_kernels.cpu.loops.dot_bytes import BYTES, WORDS, add_products, words
from specdec_kernels.cpu.loops.lanes import FLOAT, FLOATS, INDEX, LANES, WORD, multiply_add, splat
from specdec_kernels.cpu.loops.loops import loop
from specdec_kernels.cpu.loops.memory import floats, keep
from specdec_kernels.cpu.loops.pointer import array_at
from specdec_kernels.cpu.loops.prefetch import emit_prefetch
from specdec_runtime.interfaces.blocks import CHUNK, KINDS, TILE, BlockKind

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
_BYTES_AHEAD, _LINE = 4096, 64
"""Distance at which weights are prefetched, and bytes of a line."""
_PARTS = 8
"""Parts of a chunk, of 4 codes each."""


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


@njit(nogil=True, cache=True, no_cpython_wrapper=True, error_model="numpy")
def _widen_tile(weight: int, tile: int, depth: int, out: int, kind: Any) -> None:
    """Write the weights of a tile to `out [K, TILE]`; takes addresses."""
    _widened(weight, tile, depth, out, kind)


@njit(nogil=True, cache=True, no_cpython_wrapper=True, error_model="numpy")
def _multiply_tiles(
    weight: int, start: int, end: int, num_weights: int, digits: int, factors: int, num_rows: int, depth: int,
    totals: int, out: int, num_out: int, kind: Any, num_digits: Any,
) -> None:  # fmt: skip
    """Multiply with a range of tiles, see `blocks_function`; the last one may have fewer rows than others."""
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
        place, num_blocks = _tile_at(builder, what, weight, tile, depth)
        for lane in range(0, TILE, LANES):
            _Products(builder, what, lane, count, digits, factors, num_rows, totals).emit(place, num_blocks)
        return target.get_dummy_value()

    return types.none(*[types.int64] * 7, kind, num_digits), codegen


_tile: Callable[..., None] = intrinsic(prefer_literal=True)(_typed)


def _typed_widened(context: Any, weight: Any, tile: Any, depth: Any, out: Any, kind: Any) -> Any:
    """Write the weights of a tile; see `_widen_tile`."""
    what = KINDS[_NAMES[kind.literal_value]]

    def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        weight, tile, depth, out, _ = arguments
        place, num_blocks = _tile_at(builder, what, weight, tile, depth)
        for lane in range(0, TILE, LANES):
            _Weights(builder, what, lane, out).emit(place, num_blocks)
        return target.get_dummy_value()

    return types.none(*[types.int64] * 4, kind), codegen


_widened: Callable[..., None] = intrinsic(prefer_literal=True)(_typed_widened)


def _tile_at(builder: Any, kind: BlockKind, weight: Any, tile: Any, depth: Any) -> tuple[Any, Any]:
    """Return the address of a tile, and the number of its blocks."""
    num_blocks = builder.lshr(depth, _index(kind.size.bit_length() - 1))
    size = builder.mul(num_blocks, _index(kind.block_bytes))
    return builder.add(weight, builder.mul(tile, size)), num_blocks


class _Tile:
    """Emits loops over `LANES` of the rows of a tile."""

    def __init__(self, builder: Any, kind: BlockKind, lane: int) -> None:
        self._builder, self._kind, self._lane = builder, kind, lane

    def emit(self, weight: Any, num_blocks: Any) -> None:
        """Emit the loops over blocks and chunks."""
        builder, kind = self._builder, self._kind
        zero, num_chunks = _index(0), kind.size // CHUNK

        def block(index: Any, carried: list[Any]) -> list[Any]:
            place = builder.add(weight, builder.mul(index, _index(kind.block_bytes)))
            scale = self._halves(place, 0)
            least = self._halves(place, 1) if kind.has_least else None
            first = builder.mul(index, _index(num_chunks))

            def chunk(number: Any, carried: list[Any]) -> list[Any]:
                codes = builder.add(
                    builder.add(place, _index(kind.header_bytes)),
                    builder.mul(number, _index(kind.chunk_bytes)),
                )
                self._prefetch(codes)
                parts, num_groups = self._parts(codes), CHUNK // kind.group
                size = len(parts) // num_groups
                for group in range(num_groups):
                    own, low = scale, least
                    if kind.num_groups:
                        index = builder.add(builder.mul(number, _index(num_groups)), _index(group))
                        own = builder.fmul(scale, self._whole(place, 0, index))
                        low = None if low is None else builder.fmul(low, self._whole(place, 1, index))
                    mine = parts[group * size : (group + 1) * size]
                    self._group(builder.add(first, number), group, mine, own, low)
                return carried

            return loop(builder, zero, _index(num_chunks), 1, carried, chunk)

        loop(builder, zero, num_blocks, 1, [], block)

    def _prefetch(self, codes: Any) -> None:
        """Emit requests for the lines that are read a while later, as those of the chunk are read now."""
        builder = self._builder
        for line in range(0, self._kind.chunk_bytes if self._lane == 0 else 0, _LINE):
            ahead = builder.add(codes, _index(_BYTES_AHEAD + line))
            emit_prefetch(builder, builder.inttoptr(ahead, ir.IntType(8).as_pointer()))

    def _group(self, chunk: Any, group: int, parts: list[Any], scale: Any, least: Any | None) -> None:
        """Emit what is done with the codes of a group."""
        raise NotImplementedError

    def _parts(self, codes: Any) -> list[Any]:
        """Return the codes of a chunk, four for each lane."""
        builder, kind = self._builder, self._kind

        def word(number: int) -> Any:
            return self._word(codes, 4 * (number * TILE + self._lane), WORDS)

        if kind.bits == 8:
            return [builder.bitcast(word(number), BYTES) for number in range(_PARTS)]
        half, width = words(0x0F0F0F0F), kind.bits - 4
        found = []
        for number in range(_PARTS):
            lower = word(number // 2)
            part = builder.and_(builder.lshr(lower, words(4)) if number % 2 else lower, half)
            if width:
                share = 8 // width
                upper, shift = word(4 + number // share), 4 - number % share * width
                upper = builder.shl(upper, words(shift)) if shift > 0 else builder.lshr(upper, words(-shift))
                mask = ((1 << width) - 1) << 4
                part = builder.or_(part, builder.and_(upper, words(mask * 0x01010101)))
            found.append(builder.bitcast(part, BYTES))
        return found

    def _halves(self, place: Any, number: int) -> Any:
        """Return the scales or least values of a block."""
        kind = ir.VectorType(ir.HalfType(), LANES)
        return self._builder.fpext(self._word(place, 2 * (number * TILE + self._lane), kind), FLOATS)

    def _whole(self, place: Any, number: int, group: Any) -> Any:
        """Return the whole numbers of a group's scales or least values."""
        builder, kind = self._builder, self._kind
        start = TILE * (2 * (1 + kind.has_least) + number * kind.num_groups) + self._lane
        at = builder.add(place, builder.mul(group, _index(TILE)))
        found = self._word(at, start, ir.VectorType(ir.IntType(8), LANES))
        return builder.sitofp(builder.sext(found, WORDS), FLOATS)

    def _word(self, base: Any, offset: int, kind: Any) -> Any:
        builder = self._builder
        return builder.load(builder.inttoptr(builder.add(base, _index(offset)), kind.as_pointer()), align=1)


class _Products(_Tile):
    """Emits the products of rows with a tile."""

    def __init__(
        self, builder: Any, kind: BlockKind, lane: int, num_digits: int, digits: Any, factors: Any, num_rows: Any, totals: Any
    ) -> None:  # fmt: skip
        super().__init__(builder, kind, lane)
        self._num_digits, self._digits, self._factors, self._num_rows = num_digits, digits, factors, num_rows
        self._totals = builder.add(totals, _index(4 * lane))

    def emit(self, weight: Any, num_blocks: Any) -> None:
        """Emit the loops over blocks, chunks and rows."""

        def cleared(t: Any, carried: list[Any]) -> list[Any]:
            self._store(_floats(0.0), t)
            return carried

        loop(self._builder, _index(0), self._num_rows, 1, [], cleared)
        super().emit(weight, num_blocks)

    def _group(self, chunk: Any, group: int, parts: list[Any], scale: Any, least: Any | None) -> None:
        builder, kind = self._builder, self._kind
        first = builder.mul(chunk, self._num_rows)
        low = builder.fmul(scale, _floats(-kind.offset)) if kind.offset else least
        sums = 1 if kind.group == CHUNK else 2 + group

        def row(t: Any, carried: list[Any]) -> list[Any]:
            place = builder.add(first, t)
            factors = builder.add(self._factors, builder.mul(place, _index(4 * FACTORS)))
            product = self._product(
                builder.mul(place, _index(CHUNK * (self._num_digits | 1))), group * kind.group, parts
            )
            total = self._load(t)
            if low is not None:
                total = multiply_add(builder, low, self._factor(factors, sums), total)
            scaled = builder.fmul(scale, self._factor(factors, 0))
            self._store(multiply_add(builder, product, scaled, total), t)
            return carried

        loop(builder, _index(0), self._num_rows, 1, [], row)

    def _product(self, place: Any, start: int, parts: list[Any]) -> Any:
        """Return the sums of codes times whole numbers, as floats."""
        builder = self._builder
        most = (1 << self._kind.bits) - 1
        sums = []  # apart, so that none waits for another
        for digit in range(self._num_digits):
            pairs = []
            for index, part in enumerate(parts):
                offset = digit * CHUNK + start + 4 * index
                pairs.append((part, lambda offset=offset: self._digits_at(place, offset)))
            sums.append(add_products(builder, words(0), pairs, most))
        total = sums[0]
        for lower in sums[1:2]:
            total = builder.add(builder.shl(total, words(8)), lower)
        wide = builder.sitofp(total, FLOATS)
        for lower in sums[2:]:  # three digits together do not fit
            wide = multiply_add(builder, wide, _floats(256.0), builder.sitofp(lower, FLOATS))
        return wide

    def _digits_at(self, place: Any, offset: int) -> Any:
        builder = self._builder
        four = self._word(builder.add(self._digits, place), offset, WORD)
        return builder.bitcast(splat(builder, four), BYTES)

    def _factor(self, factors: Any, number: int) -> Any:
        return splat(self._builder, self._word(factors, 4 * number, FLOAT))

    def _row(self, t: Any) -> Any:
        place = self._builder.add(self._totals, self._builder.mul(t, _index(4 * TILE)))
        return self._builder.inttoptr(place, FLOATS.as_pointer())

    def _load(self, t: Any) -> Any:
        return self._builder.load(self._row(t), align=4)

    def _store(self, total: Any, t: Any) -> None:
        self._builder.store(total, self._row(t), align=4)


class _Weights(_Tile):
    """Emits the weights of a tile, as float32."""

    def __init__(self, builder: Any, kind: BlockKind, lane: int, out: Any) -> None:
        super().__init__(builder, kind, lane)
        self._out = builder.add(out, _index(4 * lane))

    def _group(self, chunk: Any, group: int, parts: list[Any], scale: Any, least: Any | None) -> None:
        builder, kind = self._builder, self._kind
        place = builder.add(self._out, builder.mul(chunk, _index(4 * TILE * CHUNK)))
        for index, part in enumerate(parts):
            codes = builder.bitcast(part, WORDS)
            for byte in range(4):
                code = builder.and_(builder.lshr(codes, words(8 * byte)), words(255))
                number = builder.sitofp(builder.sub(code, words(kind.offset)), FLOATS)
                weight = builder.fmul(number, scale)
                if least is not None:
                    weight = builder.fadd(weight, least)
                at = builder.add(place, _index(4 * TILE * (group * kind.group + 4 * index + byte)))
                builder.store(weight, builder.inttoptr(at, FLOATS.as_pointer()), align=4)


def _index(number: int) -> Any:
    return ir.Constant(INDEX, number)


def _floats(number: float) -> Any:
    return ir.Constant(FLOATS, [float(number)] * LANES)
