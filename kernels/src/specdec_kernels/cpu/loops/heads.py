"""What attention does for one key-value head of a segment: functions for each type that a cache stores, called alike.

They are called by address: numba compiles a callee again within each caller, and within each of its parallel loops.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from specdec_kernels.cpu.compiled.arrays import add_rows
from specdec_kernels.cpu.compiled.calls import Signature, address_of, by_address
from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.loops.blend import row_blends
from specdec_kernels.cpu.loops.memory import floats
from specdec_kernels.cpu.loops.pointer import array_at
from specdec_kernels.cpu.loops.scores import as_multiplied, score_keys
from specdec_kernels.cpu.loops.softmax import CHUNK, cap_scores, close_up, spread, weigh

Ints = npt.NDArray[np.int64]
_CACHED = types.int64, types.int64, types.int64
"""An address, and the numbers of slots and of key-value heads there."""
_SEGMENT = (*[types.int64] * 6,)
"""The address of the segments, how many there are, the index of one, the key-value head, the window, the first positions."""
_SCORE: Signature = (
    *(types.int64, types.int64, types.int64, *_CACHED, types.int64, types.int64, *_SEGMENT),
    *(types.int64, types.int64, types.float32, types.int64, types.int64),
)
_BLEND: Signature = (
    *(types.int64, types.int64, types.int64, types.int64, *_CACHED, *_SEGMENT),
    *(types.int64, types.int64, types.float32, types.int64, types.int64, types.int64),
)
score_head = by_address(_SCORE)
"""Calls the function at an address with the arguments of `_score`, but `dtype`."""
blend_head = by_address(_BLEND)
"""Calls the function at an address with the arguments of `_blend`, but `dtype`."""


@cache  # asking numba takes longer than attention to a short context
def head_functions(stored: np.dtype[Any]) -> tuple[int, int]:
    """Return the addresses of the functions for cache rows of this type, for `score_head` and `blend_head`."""
    if stored == np.uint16:
        return address_of(_score_bfloat16, _SCORE), address_of(_blend_bfloat16, _BLEND)
    return address_of(_score_float32, _SCORE), address_of(_blend_float32, _BLEND)


@njit(inline="always")
def keys_of(segments: Ints, index: int, window: int, num_first: int) -> tuple[int, int, int]:
    """Return which positions of a segment are read, and how many keys these are.

    They are those from the first number on, a multiple of `CHUNK`, and before them as many as the second says from position 0
    on: `CHUNK` or none.
    """
    common = segments[3, index] - max(segments[4, index], 0)
    first = max(0, common - window + 1) // CHUNK * CHUNK
    ahead = CHUNK if num_first and first else 0
    return first, ahead, segments[3, index] + segments[1, index] - first + ahead


@njit(inline="always")
def _score(
    query: int, num_heads: int, key_dim: int, keys: int, num_slots: int, num_kv_heads: int, values: int, value_dim: int,
    segments: int, num_segments: int, index: int, head: int, window: int, num_first: int, start: int, end: int,
    scaling: np.float32, scores: int, width: int, dtype: Any,
) -> None:  # fmt: skip
    """Write the scores of a segment's keys `start` to `end`, of those that `keys_of` counts.

    Arrays are given by address: passing one counts references to it, for which threads that share it wait for each other.

    Args:
        query: address of `[T, H, Dk]`.
        num_heads: H.
        key_dim: Dk.
        keys: address of the layer's keys `[num_slots, Hkv, Dk]`.
        num_slots: see `keys`.
        num_kv_heads: Hkv.
        values: address of its values `[num_slots, Hkv, Dv]`, which are prefetched.
        value_dim: Dv.
        segments: address of the segments; see `attend`, like `window` and `num_first`.
        num_segments: how many there are.
        index: the segment.
        head: the key-value head.
        window: ditto.
        num_first: ditto.
        start: first key, a multiple of `CHUNK`.
        end: exclusive end.
        scaling: factor on the scores.
        scores: address of the scores `[n, width]` of the segment's n queries of this head.
        width: a multiple of `CHUNK`.
        dtype: of keys and values.
    """
    table = array_at(segments, (5, num_segments), np.int64)
    row, count, first_slot = table[0, index], table[1, index], table[2, index]
    all_queries = array_at(query, (row + count, num_heads, key_dim), np.float32)
    all_keys = array_at(keys, (num_slots, num_kv_heads, key_dim), dtype)
    all_values = array_at(values, (num_slots, num_kv_heads, value_dim), dtype)
    group = num_heads // num_kv_heads
    scaled = np.empty((count * group, key_dim), np.float32)
    for r in range(scaled.shape[0]):
        for d in range(key_dim):
            scaled[r, d] = all_queries[row + r // group, head * group + r % group, d] * scaling
    queries = as_multiplied(scaled, all_keys)
    out = array_at(scores, (scaled.shape[0], width), np.float32)
    first, ahead, _ = keys_of(table, index, window, num_first)
    while start < end:  # the first positions, then the others
        skipped, until = (0, ahead) if start < ahead else (first - ahead, end)
        score_keys(
            queries, all_keys, all_values, first_slot + skipped + start, head, until - start, out[:, start:]
        )
        start = until


@njit(inline="always")
def _blend(
    scores: int, width: int, begin: int, end: int, values: int, num_slots: int, num_kv_heads: int, segments: int,
    num_segments: int, index: int, head: int, window: int, num_first: int, visible: int, num_visible: int,
    softcap: np.float32, out: int, num_heads: int, value_dim: int, dtype: Any,
) -> None:  # fmt: skip
    """Write the attention output of some of a segment's queries of one key-value head; see `_score`.

    Args:
        scores: address of the scores of the segment's queries, of which these queries' are overwritten.
        width: ditto.
        begin: index of the first of these queries.
        end: of the one after the last.
        values: address of the layer's values `[num_slots, Hkv, Dv]`.
        num_slots: ditto.
        num_kv_heads: ditto.
        segments: ditto.
        num_segments: ditto.
        index: ditto.
        head: ditto.
        window: ditto.
        num_first: ditto.
        visible: address of `[T, W]`, see `attend`.
        num_visible: W.
        softcap: ditto.
        out: address of `[T, H, Dv]`, written.
        num_heads: ditto.
        value_dim: ditto.
        dtype: ditto.
    """
    table = array_at(segments, (5, num_segments), np.int64)
    row, count, first_slot = table[0, index], table[1, index], table[2, index]
    before, branched = table[3, index], table[4, index]
    all_values = array_at(values, (num_slots, num_kv_heads, value_dim), dtype)
    attended = array_at(out, (row + count, num_heads, value_dim), np.float32)
    seen = array_at(visible, (row + count, num_visible), np.bool_)
    group = num_heads // num_kv_heads
    first, ahead, length = keys_of(table, index, window, num_first)
    skipped = first - ahead
    common = before - max(branched, 0) - skipped
    used_width = (length + CHUNK - 1) // CHUNK * CHUNK
    used = array_at(scores + 4 * begin * width, (end - begin, width), np.float32)[:, :used_width]
    num_parts, num_queries = 2 if ahead else 1, end - begin
    memory = floats((num_parts * value_dim + 1) * num_queries)
    sums = memory[: num_parts * num_queries * value_dim].reshape(num_parts, num_queries, value_dim)
    masses = memory[num_parts * num_queries * value_dim :]
    for r in range(num_queries):
        local = (begin + r) // group
        if softcap > 0:
            cap_scores(used[r], softcap)
        if branched >= 0:
            own = used[r, common:]
            num_own = close_up(own, seen[row + local], branched + count)
            masses[r] = weigh(used[r], common + num_own, window, num_first)
            spread(own, seen[row + local], branched + count, num_own)
        else:
            masses[r] = weigh(used[r], before - skipped + local + 1, window, num_first)
    for part in range(num_parts):  # the positions of the window, then the first ones
        skips, slot, number = (0, first_slot, ahead) if part else (ahead, first_slot + first, length - ahead)
        row_blends(used[:, skips:], all_values, slot, head, number, sums[part])
    if ahead:
        add_rows(sums[1], sums[0])
    for r in range(num_queries):
        place = begin + r
        for d in range(value_dim):
            attended[row + place // group, head * group + place % group, d] = sums[0, r, d] / masses[r]


@njit(nogil=True, cache=True, error_model="numpy")
def _score_float32(
    query: int, num_heads: int, key_dim: int, keys: int, num_slots: int, num_kv_heads: int, values: int, value_dim: int,
    segments: int, num_segments: int, index: int, head: int, window: int, num_first: int, start: int, end: int,
    scaling: np.float32, scores: int, width: int,
) -> None:  # fmt: skip
    _score(
        query, num_heads, key_dim, keys, num_slots, num_kv_heads, values, value_dim, segments, num_segments, index, head,
        window, num_first, start, end, scaling, scores, width, np.float32,
    )  # fmt: skip


@njit(nogil=True, cache=True, error_model="numpy")
def _score_bfloat16(
    query: int, num_heads: int, key_dim: int, keys: int, num_slots: int, num_kv_heads: int, values: int, value_dim: int,
    segments: int, num_segments: int, index: int, head: int, window: int, num_first: int, start: int, end: int,
    scaling: np.float32, scores: int, width: int,
) -> None:  # fmt: skip
    _score(
        query, num_heads, key_dim, keys, num_slots, num_kv_heads, values, value_dim, segments, num_segments, index, head,
        window, num_first, start, end, scaling, scores, width, np.uint16,
    )  # fmt: skip


@njit(nogil=True, cache=True, error_model="numpy")
def _blend_float32(
    scores: int, width: int, begin: int, end: int, values: int, num_slots: int, num_kv_heads: int, segments: int,
    num_segments: int, index: int, head: int, window: int, num_first: int, visible: int, num_visible: int,
    softcap: np.float32, out: int, num_heads: int, value_dim: int,
) -> None:  # fmt: skip
    _blend(
        scores, width, begin, end, values, num_slots, num_kv_heads, segments, num_segments, index, head, window, num_first,
        visible, num_visible, softcap, out, num_heads, value_dim, np.float32,
    )  # fmt: skip


@njit(nogil=True, cache=True, error_model="numpy")
def _blend_bfloat16(
    scores: int, width: int, begin: int, end: int, values: int, num_slots: int, num_kv_heads: int, segments: int,
    num_segments: int, index: int, head: int, window: int, num_first: int, visible: int, num_visible: int,
    softcap: np.float32, out: int, num_heads: int, value_dim: int,
) -> None:  # fmt: skip
    _blend(
        scores, width, begin, end, values, num_slots, num_kv_heads, segments, num_segments, index, head, window, num_first,
        visible, num_visible, softcap, out, num_heads, value_dim, np.uint16,
    )  # fmt: skip
