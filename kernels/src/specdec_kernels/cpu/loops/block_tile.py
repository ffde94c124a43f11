"""Emits code that reads tiles of weights in blocks: their products with rows, and themselves; all kinds by one description."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from specdec_kernels.cpu.loops.digits import FACTORS
from specdec_kernels.cpu.loops.dot_bytes import BYTES, WORDS, add_products, words
from specdec_kernels.cpu.loops.lanes import FLOAT, FLOATS, INDEX, LANES, WORD, multiply_add, splat
from specdec_kernels.cpu.loops.loops import loop
from specdec_kernels.cpu.loops.prefetch import emit_prefetch
from specdec_runtime.interfaces.blocks import CHUNK, TILE, BlockKind

_BYTES_AHEAD, _LINE = 4096, 64
"""Distance at which weights are prefetched, and bytes of a line."""
_MANY_ROWS = 3
"""From so many rows on weights are prefetched to the first-level cache: by then arithmetic takes as long as reading."""
_PARTS = 8
"""Parts of a chunk, of 4 codes each."""


def tile_at(builder: Any, kind: BlockKind, weight: Any, tile: Any, depth: Any) -> tuple[Any, Any]:
    """Return the address of a tile, and the number of its blocks."""
    num_blocks = builder.lshr(depth, _index(kind.size.bit_length() - 1))
    size = builder.mul(num_blocks, _index(kind.block_bytes))
    return builder.add(weight, builder.mul(tile, size)), num_blocks


class Tile:
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
            self._prefetch(place, kind.header_bytes)

            def chunk(number: Any, carried: list[Any]) -> list[Any]:
                codes = builder.add(
                    builder.add(place, _index(kind.header_bytes)),
                    builder.mul(number, _index(kind.chunk_bytes)),
                )
                self._prefetch(codes, kind.chunk_bytes)
                parts, num_groups = self._parts(codes), max(1, CHUNK // kind.group)
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

    def _prefetch(self, place: Any, num_bytes: int, level: int = 2) -> None:
        """Emit requests for the lines that are read a while later, as those from a place on are read now."""
        builder = self._builder
        for line in range(0, num_bytes if self._lane == 0 else 0, _LINE):
            ahead = builder.add(place, _index(_BYTES_AHEAD + line))
            emit_prefetch(builder, builder.inttoptr(ahead, ir.IntType(8).as_pointer()), level)

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


class Products(Tile):
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

    def _prefetch(self, place: Any, num_bytes: int, level: int = 2) -> None:
        if self._lane == 0:
            many = self._builder.icmp_signed(">=", self._num_rows, _index(_MANY_ROWS))
            with self._builder.if_else(many) as (if_many, if_few):
                with if_many:
                    super()._prefetch(place, num_bytes, 1)
                with if_few:
                    super()._prefetch(place, num_bytes)

    def _group(self, chunk: Any, group: int, parts: list[Any], scale: Any, least: Any | None) -> None:
        builder, kind = self._builder, self._kind
        first = builder.mul(chunk, self._num_rows)
        low = builder.fmul(scale, _floats(-kind.offset)) if kind.offset else least
        low = builder.fmul(scale, least) if kind.is_least_scaled else low
        sums = 1 if kind.group >= CHUNK else 2 + group

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


class Weights(Tile):
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
                number = builder.fadd(number, least) if kind.is_least_scaled else number
                weight = builder.fmul(number, scale)
                if least is not None and not kind.is_least_scaled:
                    weight = builder.fadd(weight, least)
                at = builder.add(place, _index(4 * TILE * (group * kind.group + 4 * index + byte)))
                builder.store(weight, builder.inttoptr(at, FLOATS.as_pointer()), align=4)


def _index(number: int) -> Any:
    return ir.Constant(INDEX, number)


def _floats(number: float) -> Any:
    return ir.Constant(FLOATS, [float(number)] * LANES)
