"""Transposes tiles of keys: one vector register holds dimension d of several keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from specdec_kernels.cpu.loops.lanes import (
    FLOAT,
    HALF,
    HAS_BFLOAT16_PAIRS,
    INDEX,
    LANES,
    WORD,
    Kind,
    lanes,
    load_floats,
    pointer,
)
from specdec_kernels.cpu.loops.loops import loop

TILE_KEYS = LANES
"""Keys transposed at a time."""


def key_kind(key_type: Any) -> Kind:
    """Return how keys of a stored type are multiplied; see `Kind`."""
    if key_type == types.float32:
        return Kind.FLOATS
    return Kind.BFLOATS if HAS_BFLOAT16_PAIRS else Kind.WIDENED


def _turned(typing_context: Any, key: Any, keys: Any, step: Any, count: Any, depth: Any, out: Any) -> Any:
    """Transpose `TILE_KEYS` keys: write word k of each, a float32 or two bfloat16 numbers, into one register.

    Its arguments are the array of keys (for its type only), the address of the first key, the bytes from one key to the
    next, the number of keys, at least 1 (missing keys are replaced by the last one), the depth, and the address of the
    output, float32 `[depth, LANES]` or pairs `[(depth + 1) / 2, LANES]`.
    """
    kind = key_kind(key.dtype)

    def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _emit(builder, kind, *arguments[1:])
        return target.get_dummy_value()

    return types.void(key, *[types.int64] * 5), codegen


turn_keys: Callable[..., None] = intrinsic(_turned)


def _emit(builder: Any, kind: Kind, keys: Any, step: Any, count: Any, depth: Any, out: Any) -> None:
    last = builder.sub(count, ir.Constant(INDEX, 1))
    zero, size = ir.Constant(INDEX, 0), ir.Constant(INDEX, 4 * LANES)
    rows = []
    for i in range(TILE_KEYS):
        number = ir.Constant(INDEX, i)
        number = builder.select(builder.icmp_signed("<", number, last), number, last)
        rows.append(builder.add(keys, builder.mul(number, step)))
    words = num_words(builder, depth, is_paired=kind is Kind.BFLOATS)
    full = builder.lshr(depth, ir.Constant(INDEX, 1)) if kind is Kind.BFLOATS else depth
    whole = builder.and_(full, ir.Constant(INDEX, -LANES))

    def square(k: Any, carried: list[Any]) -> list[Any]:
        vectors = [load_floats(builder, row, 0, step, k, kind is Kind.WIDENED) for row in rows]
        for i, vector in enumerate(_transposed(builder, vectors)):
            place = pointer(builder, builder.add(out, builder.mul(k, size)), i, size, zero, FLOAT, LANES)
            builder.store(vector, place, align=4)
        return carried

    def column(k: Any, carried: list[Any]) -> list[Any]:
        for i, row in enumerate(rows):
            place = pointer(
                builder, builder.add(out, builder.mul(k, size)), 0, size, ir.Constant(INDEX, i), WORD
            )
            builder.store(_word(builder, kind, row, k, depth), place, align=4)
        return carried

    loop(builder, zero, whole, LANES, [], square)
    loop(builder, whole, words, 1, [], column)


def num_words(builder: Any, depth: Any, *, is_paired: bool) -> Any:
    """Return the number of words per key; the last one may be half empty."""
    one = ir.Constant(INDEX, 1)
    return builder.lshr(builder.add(depth, one), one) if is_paired else depth


def _word(builder: Any, kind: Kind, row: Any, k: Any, depth: Any) -> Any:
    """Return word `k` of one key."""
    zero = ir.Constant(INDEX, 0)
    if kind is Kind.FLOATS:
        return builder.load(pointer(builder, row, 0, zero, k, WORD), align=2)

    def half(number: Any) -> Any:
        return builder.zext(builder.load(pointer(builder, row, 0, zero, number, HALF), align=2), WORD)

    upper = ir.Constant(WORD, 16)
    if kind is Kind.WIDENED:
        return builder.shl(half(k), upper)
    first = builder.shl(k, ir.Constant(INDEX, 1))
    second = builder.add(first, ir.Constant(INDEX, 1))
    is_there = builder.icmp_signed("<", second, depth)
    number = half(builder.select(is_there, second, first))
    return builder.or_(
        half(first), builder.select(is_there, builder.shl(number, upper), ir.Constant(WORD, 0))
    )


def _transposed(builder: Any, vectors: list[Any]) -> list[Any]:
    """Transpose a square of registers by exchanging blocks of doubling size across the diagonal."""
    distance = 1
    while distance < LANES:
        exchanged = list(vectors)
        for i in range(LANES):
            if i & distance:
                continue
            upper, lower = vectors[i], vectors[i + distance]
            kept = [j if not j & distance else LANES + j - distance for j in range(LANES)]
            given = [j + distance if not j & distance else LANES + j for j in range(LANES)]
            exchanged[i] = builder.shuffle_vector(upper, lower, lanes(kept))
            exchanged[i + distance] = builder.shuffle_vector(upper, lower, lanes(given))
        vectors = exchanged
        distance *= 2
    return vectors
