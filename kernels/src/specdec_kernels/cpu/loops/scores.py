"""Products of queries with cached keys: the inner loop of attention's scores, one key per lane of a vector register.

A tile of keys is transposed once and then multiplied with every query. No register is ever summed across its lanes, and
every score is one sum in the order of the head's dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

from specdec_kernels.cpu.compiled.math import narrow
from specdec_kernels.cpu.loops.lanes import (
    BFLOATS,
    FLOAT,
    INDEX,
    LANES,
    WORD,
    Kind,
    add_pairs,
    multiply_add,
    pointer,
    splat,
)
from specdec_kernels.cpu.loops.loops import by_count, loop, next_count
from specdec_kernels.cpu.loops.memory import floats
from specdec_kernels.cpu.loops.prefetch import prefetch
from specdec_kernels.cpu.loops.turn import TILE_KEYS, key_kind, num_words, turn_keys

_TILE_QUERIES = 8
"""Queries multiplied at a time; as many independent sums hide the latency of one."""
_KEYS_AHEAD = 16
"""Prefetch distance in keys. One head's keys are not contiguous, so the hardware does not prefetch them."""


def _tile(
    typing_context: Any, key: Any, count: Any, queries: Any, queries_step: Any, turned: Any, out: Any, out_step: Any,
    depth: Any,
) -> Any:  # fmt: skip
    """Intrinsic that multiplies up to `_TILE_QUERIES` queries with a transposed tile.

    Its arguments are the array of keys (for its type only), the number of queries, address and bytes per row of the
    queries (float32, or pairs of bfloat16 if the keys are), the address of the transposed tile, address and bytes per row
    of the output, of which `TILE_KEYS` float32 are written for each query, and the depth.
    """
    kind = key_kind(key.dtype)

    def codegen(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, count, *places = arguments
        by_count(builder, count, _TILE_QUERIES, lambda n: _emit(builder, kind is Kind.BFLOATS, n, *places))
        return target.get_dummy_value()

    return types.void(key, *[types.int64] * 7), codegen


_score_tile: Callable[..., None] = intrinsic(_tile)


def _emit(
    builder: Any, is_paired: bool, num_queries: int, queries: Any, queries_step: Any, turned: Any, out: Any,
    out_step: Any, depth: Any,
) -> None:  # fmt: skip
    zero, size = ir.Constant(INDEX, 0), ir.Constant(INDEX, 4 * LANES)

    def multiplied(k: Any, sums: list[Any]) -> list[Any]:
        keys = builder.load(
            pointer(builder, builder.add(turned, builder.mul(k, size)), 0, size, zero, FLOAT, LANES), align=4
        )
        results = []
        for i, total in enumerate(sums):
            word = pointer(builder, queries, i, queries_step, k, WORD if is_paired else FLOAT)
            number = splat(builder, builder.load(word, align=4))
            if is_paired:
                pairs = builder.bitcast(keys, BFLOATS), builder.bitcast(number, BFLOATS)
                results.append(add_pairs(builder, *pairs, total))
            else:
                results.append(multiply_add(builder, keys, number, total))
        return results

    words = num_words(builder, depth, is_paired=is_paired)
    for i, total in enumerate(loop(builder, zero, words, 1, [0.0] * num_queries, multiplied)):
        builder.store(total, pointer(builder, out, i, out_step, zero, FLOAT, LANES), align=4)


def as_multiplied(queries: Any, keys: Any) -> Any:
    """Return queries `[n, D]` in the form that is multiplied with keys of this type; compiled code only.

    If the processor multiplies pairs of bfloat16 and the keys are bfloat16, the queries are rounded to bfloat16, as in a
    model that runs in bfloat16, and padded with a zero if D is odd.
    """
    raise NotImplementedError("compiled code only")


@overload(as_multiplied, strict=False)
def _overload_as_multiplied(queries: Any, keys: Any) -> Callable[[Any, Any], Any]:
    if key_kind(keys.dtype) is not Kind.BFLOATS:
        return lambda queries, keys: queries

    def rounded(queries: Any, keys: Any) -> Any:
        num_queries, depth = queries.shape
        halves = np.zeros((num_queries, depth + depth % 2), np.uint16)
        for r in range(num_queries):
            for d in range(depth):
                halves[r, d] = narrow(queries[r, d], halves[r, d])
        return halves

    return rounded


@njit(inline="always")
def score_keys(queries: Any, keys: Any, values: Any, start: int, head: int, length: int, out: Any) -> None:
    """Write the products of `queries [n, D]` with the keys `[L, D]` of one head from slot `start` on to `out [n, W]`.

    The values, which are read next, are prefetched meanwhile.

    Args:
        queries: `[n, D]`, see `as_multiplied`; contiguous.
        keys: `[num_slots, Hkv, D]` float32 or the bits of bfloat16.
        values: `[num_slots, Hkv, Dv]`.
        start: slot of the first key.
        head: key-value head.
        length: number of keys, L.
        out: `[n, W]` float32, rows contiguous; W is at least L rounded up to `TILE_KEYS`; entries behind L are undefined.
    """
    step, value_step = keys.strides[0], values.strides[0]
    first = keys.ctypes.data + start * step + head * keys.strides[1]
    first_value = values.ctypes.data + start * value_step + head * values.strides[1]
    depth, num_bytes, num_value_bytes = keys.shape[2], keys.strides[1], values.strides[1]
    turned = floats(depth * LANES)
    for j in range(0, length, TILE_KEYS):
        for i in range(TILE_KEYS):
            prefetch(first + (j + i + _KEYS_AHEAD) * step, num_bytes)
            prefetch(first_value + (j + i) * value_step, num_value_bytes)
        turn_keys(keys, first + j * step, step, length - j, depth, turned.ctypes.data)
        t = 0
        while t < queries.shape[0]:
            count = next_count(queries.shape[0] - t, _TILE_QUERIES)
            _score_tile(
                keys, count, queries.ctypes.data + t * queries.strides[0], queries.strides[0], turned.ctypes.data,
                out.ctypes.data + t * out.strides[0] + j * 4, out.strides[0], depth,
            )  # fmt: skip
            t += count
