"""What attention does for one key-value head of a segment: functions for each type that a cache stores, called alike.

They are called by address: numba compiles a callee again within each caller, and within each of its parallel loops.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from specdec_kernels.cpu.compiled.calls import Signature, address_of, by_address
from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.loops.blend import row_blends
from specdec_kernels.cpu.loops.memory import floats
from specdec_kernels.cpu.loops.pointer import array_at
from specdec_kernels.cpu.loops.scores import as_multiplied, score_keys
from specdec_kernels.cpu.loops.softmax import CHUNK, cap_scores, close_up, spread, weigh
from specdec_kernels.cpu.stored import Stored

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_ROWS = types.float32[:, :, ::1]
_SEGMENT = types.int64[:, ::1], *[types.int64] * 4
"""The segments, the index of one, the key-value head, the window and the number of first positions."""
_CACHED = types.int64, types.int64, types.int64
"""An address, and the numbers of slots and of key-value heads there."""
_SCORES = types.float32[::1], types.int64, types.int64
"""Memory, the place in it of a segment's scores of one head, and the length of a row of them."""
_SCORE: Signature = (
    *(_ROWS, *_CACHED, types.int64, types.int64, *_SEGMENT),
    *(types.int64, types.int64, types.float32, *_SCORES),
)
_BLEND: Signature = (
    *(*_SCORES, types.int64, types.int64, *_CACHED, *_SEGMENT),
    *(types.boolean[:, ::1], types.float32, _ROWS),
)
score_head = by_address(_SCORE)
"""Calls the function at an address with the arguments of `_score`, but `like`."""
blend_head = by_address(_BLEND)
"""Calls the function at an address with the arguments of `_blend`, but `like`."""


@cache  # asking numba takes longer than attention to a short context
def head_functions(stored: np.dtype[Any]) -> tuple[int, int]:
    """Return the addresses of the functions for cache rows of this type, for `score_head` and `blend_head`."""
    if stored == np.uint16:
        return address_of(_score_bfloat16, _SCORE), address_of(_blend_bfloat16, _BLEND)
    return address_of(_score_float32, _SCORE), address_of(_blend_float32, _BLEND)


@njit(inline="always")
def keys_of(segment: Ints, window: int, num_first: int) -> tuple[int, int, int]:
    """Return which positions of a segment are read, and how many keys these are.

    They are those from the first number on, a multiple of `CHUNK`, and before them as many as the second says from position 0
    on: `CHUNK` or none.
    """
    common = segment[3] - max(segment[4], 0)
    first = max(0, common - window + 1) // CHUNK * CHUNK
    ahead = CHUNK if num_first and first else 0
    return first, ahead, segment[3] + segment[1] - first + ahead


@njit(inline="always")
def _score(
    query: Floats, keys: int, num_slots: int, num_kv_heads: int, values: int, value_dim: int, segments: Ints, index: int,
    head: int, window: int, num_first: int, start: int, end: int, scaling: np.float32, scratch: Floats, place: int, width: int,
    like: Stored,
) -> None:  # fmt: skip
    """Write the scores of a segment's keys `start` to `end`, of those that `keys_of` counts.

    Args:
        query: `[T, H, Dk]`.
        keys: address of the layer's keys `[num_slots, Hkv, Dk]`.
        num_slots: see `keys`.
        num_kv_heads: Hkv.
        values: address of its values `[num_slots, Hkv, Dv]`, which are prefetched.
        value_dim: Dv.
        segments: see `attend`, like `window` and `num_first`.
        index: the segment.
        head: the key-value head.
        window: ditto.
        num_first: ditto.
        start: first key, a multiple of `CHUNK`.
        end: exclusive end.
        scaling: factor on the scores.
        scratch: memory; the scores `[n, width]` of the segment's n queries of this head are in it.
        place: where they begin.
        width: a multiple of `CHUNK`.
        like: an array of the type of the rows.
    """
    segment = segments[:, index]
    all_keys = array_at(keys, (num_slots, num_kv_heads, query.shape[2]), like)
    all_values = array_at(values, (num_slots, num_kv_heads, value_dim), like)
    group = query.shape[1] // num_kv_heads
    scaled = np.empty((segment[1] * group, query.shape[2]), np.float32)
    for r in range(scaled.shape[0]):
        for d in range(scaled.shape[1]):
            scaled[r, d] = query[segment[0] + r // group, head * group + r % group, d] * scaling
    queries = as_multiplied(scaled, like)
    out = scratch[place : place + scaled.shape[0] * width].reshape(scaled.shape[0], width)
    first, ahead, _ = keys_of(segment, window, num_first)
    while start < end:  # the first positions, then the others
        skipped, until = (0, ahead) if start < ahead else (first - ahead, end)
        score_keys(
            queries, all_keys, all_values, segment[2] + skipped + start, head, until - start, out[:, start:]
        )
        start = until


@njit(inline="always")
def _blend(
    scratch: Floats, place: int, width: int, begin: int, end: int, values: int, num_slots: int, num_kv_heads: int,
    segments: Ints, index: int, head: int, window: int, num_first: int, visible: Flags, softcap: np.float32, out: Floats,
    like: Stored,
) -> None:  # fmt: skip
    """Write the attention output of some of a segment's queries of one key-value head; see `_score`.

    Args:
        scratch: with the scores, of which these queries' are overwritten.
        place: ditto.
        width: ditto.
        begin: index of the first of these queries.
        end: of the one after the last.
        values: address of the layer's values `[num_slots, Hkv, Dv]`.
        num_slots: ditto.
        num_kv_heads: ditto.
        segments: ditto.
        index: ditto.
        head: ditto.
        window: ditto.
        num_first: ditto.
        visible: see `attend`.
        softcap: ditto.
        out: `[T, H, Dv]`, written.
        like: ditto.
    """
    segment = segments[:, index]
    all_values = array_at(values, (num_slots, num_kv_heads, out.shape[2]), like)
    group = out.shape[1] // num_kv_heads
    row, count, before, branched = segment[0], segment[1], segment[3], segment[4]
    first, ahead, length = keys_of(segment, window, num_first)
    skipped = first - ahead
    common = before - max(branched, 0) - skipped
    scores = scratch[place + begin * width : place + end * width].reshape(end - begin, width)
    used = scores[:, : (length + CHUNK - 1) // CHUNK * CHUNK]
    masses = np.empty(end - begin, np.float32)
    for r in range(end - begin):
        local = (begin + r) // group
        if softcap > 0:
            cap_scores(used[r], softcap)
        if branched >= 0:
            seen, own = visible[row + local], used[r, common:]
            num_own = close_up(own, seen, branched + count)
            masses[r] = weigh(used[r], common + num_own, window, num_first)
            spread(own, seen, branched + count, num_own)
        else:
            masses[r] = weigh(used[r], before - skipped + local + 1, window, num_first)
    num_parts = 2 if ahead else 1
    sums = floats(num_parts * (end - begin) * out.shape[2]).reshape(num_parts, end - begin, out.shape[2])
    for part in range(num_parts):  # the positions of the window, then the first ones
        skips, slot, number = (0, segment[2], ahead) if part else (ahead, segment[2] + first, length - ahead)
        row_blends(used[:, skips:], all_values, slot, head, number, sums[part])
    if ahead:
        sums[0] += sums[1]
    for r in range(end - begin):
        place = begin + r
        for d in range(out.shape[2]):
            out[row + place // group, head * group + place % group, d] = sums[0, r, d] / masses[r]


@njit(nogil=True, cache=True, error_model="numpy")
def _score_float32(
    query: Floats, keys: int, num_slots: int, num_kv_heads: int, values: int, value_dim: int, segments: Ints, index: int,
    head: int, window: int, num_first: int, start: int, end: int, scaling: np.float32, scratch: Floats, place: int, width: int,
) -> None:  # fmt: skip
    _score(
        query, keys, num_slots, num_kv_heads, values, value_dim, segments, index, head, window, num_first, start, end,
        scaling, scratch, place, width, np.empty((0, 0, 0), np.float32),
    )  # fmt: skip


@njit(nogil=True, cache=True, error_model="numpy")
def _score_bfloat16(
    query: Floats, keys: int, num_slots: int, num_kv_heads: int, values: int, value_dim: int, segments: Ints, index: int,
    head: int, window: int, num_first: int, start: int, end: int, scaling: np.float32, scratch: Floats, place: int, width: int,
) -> None:  # fmt: skip
    _score(
        query, keys, num_slots, num_kv_heads, values, value_dim, segments, index, head, window, num_first, start, end,
        scaling, scratch, place, width, np.empty((0, 0, 0), np.uint16),
    )  # fmt: skip


@njit(nogil=True, cache=True, error_model="numpy")
def _blend_float32(
    scratch: Floats, place: int, width: int, begin: int, end: int, values: int, num_slots: int, num_kv_heads: int,
    segments: Ints, index: int, head: int, window: int, num_first: int, visible: Flags, softcap: np.float32, out: Floats,
) -> None:  # fmt: skip
    _blend(
        scratch, place, width, begin, end, values, num_slots, num_kv_heads, segments, index, head, window, num_first,
        visible, softcap, out, np.empty((0, 0, 0), np.float32),
    )  # fmt: skip


@njit(nogil=True, cache=True, error_model="numpy")
def _blend_bfloat16(
    scratch: Floats, place: int, width: int, begin: int, end: int, values: int, num_slots: int, num_kv_heads: int,
    segments: Ints, index: int, head: int, window: int, num_first: int, visible: Flags, softcap: np.float32, out: Floats,
) -> None:  # fmt: skip
    _blend(
        scratch, place, width, begin, end, values, num_slots, num_kv_heads, segments, index, head, window, num_first,
        visible, softcap, out, np.empty((0, 0, 0), np.uint16),
    )  # fmt: skip
