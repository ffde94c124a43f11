"""Attention of a few rows per request over contiguous cache rows, float32, one call for the whole batch.

Nothing here is compiled with `fastmath`: it would allow reordering every instruction of a function, including those of
the hand-written loops, whose fixed order makes a row's result batch-invariant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import prange

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.loops.blend import row_blends
from specdec_kernels.cpu.loops.memory import floats
from specdec_kernels.cpu.loops.scores import as_multiplied, score_keys
from specdec_kernels.cpu.loops.segments import SegmentArrays
from specdec_kernels.cpu.loops.softmax import CHUNK, cap_scores, close_up, spread, weigh
from specdec_kernels.cpu.stored import Stored

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
NO_WINDOW = 2**31 - 1
_MANY_ROWS = 8
"""Average rows per request from which on attention is bound by computation rather than by memory reads."""

_FEW_HEADS = 8
"""Up to this many key-value heads, over all requests, threads share the work on each head. Otherwise, with three heads on
two threads, one thread would idle during the third head."""
_MOST_SCORES = 2**20
"""Up to this many scores per pass (4 MiB), threads share the work on each head. Pieces of long prompts have more scores;
there, each head is one thread's work."""


@njit(parallel=True, nogil=True, cache=True, error_model="numpy")
def attend(
    query: Floats,
    keys: Stored,
    values: Stored,
    segments: Ints,
    visible: npt.NDArray[np.bool_],
    window: int,
    num_first: int,
    scaling: np.float32,
    softcap: np.float32,
    scratch: Floats,
    out: Floats,
) -> None:
    """Attend; the pass's own keys and values must already be in the cache.

    Bit for bit, a row's output depends only on the tokens that it sees and on their order. It does not depend on other
    rows, on the number of rows, or on whether its path is a chain or part of a tree.

    Args:
        query: `[T, H, Dk]`.
        keys: `[num_slots, Hkv, Dk]`, float32 or the bits of bfloat16.
        values: `[num_slots, Hkv, Dv]`, likewise.
        segments: `[5, S]`, see `SegmentArrays`.
        visible: see `SegmentArrays`.
        window: number of positions that a row sees, itself included, or `NO_WINDOW`.
        num_first: number of positions at the beginning, at most `CHUNK`, that it sees beside these.
        scaling: factor on the scores.
        softcap: scores are `softcap * tanh(score / softcap)`; 0 if they are not.
        scratch: see `scratch_size`.
        out: `[T, H, Dv]`, written.
    """
    num_segments, num_kv_heads = segments.shape[1], keys.shape[1]
    group = query.shape[1] // num_kv_heads
    if _is_together(segments, query.shape[1], num_kv_heads):
        _attend_together(
            query, keys, values, segments, visible, window, num_first, scaling, softcap, scratch, out
        )
        return
    is_by_heads = _is_by_heads(segments)
    for unit in prange(num_segments * num_kv_heads):
        if is_by_heads:
            segment, head = unit % num_segments, unit // num_segments
        else:
            segment, head = unit // num_kv_heads, unit % num_kv_heads
        length = _keys_of(segments[:, segment], window, num_first)[2]
        num_queries = segments[1, segment] * group
        width = (length + CHUNK - 1) // CHUNK * CHUNK
        scores = floats(num_queries * width).reshape(num_queries, width)
        queries = _queries(query, keys, segments[:, segment], head, scaling)
        _score(queries, keys, values, segments[:, segment], window, num_first, head, 0, length, scores)
        _blend(
            scores,
            values,
            segments[:, segment],
            visible,
            window,
            num_first,
            softcap,
            head,
            (0, num_queries),
            out,
        )


@njit(parallel=True, nogil=True, error_model="numpy")
def _attend_together(
    query: Floats, keys: Stored, values: Stored, segments: Ints, visible: npt.NDArray[np.bool_], window: int,
    num_first: int, scaling: np.float32, softcap: np.float32, scratch: Floats, out: Floats,
) -> None:  # fmt: skip
    """Attend with several threads per head: each thread first takes a part of the keys, then a part of the rows."""
    num_segments, num_kv_heads = segments.shape[1], keys.shape[1]
    group = query.shape[1] // num_kv_heads
    num_parts = max(2, _FEW_HEADS // (num_segments * num_kv_heads))
    most, width = _largest(segments)
    scores = scratch[: num_segments * num_kv_heads * most * group * width]
    scores = scores.reshape(num_segments, num_kv_heads, most * group, width)
    for unit in prange(num_segments * num_kv_heads * num_parts):
        part, rest = unit % num_parts, unit // num_parts
        head, segment = rest % num_kv_heads, rest // num_kv_heads
        length = _keys_of(segments[:, segment], window, num_first)[2]
        num_chunks = (length + CHUNK - 1) // CHUNK
        start = part * num_chunks // num_parts * CHUNK
        end = min(length, (part + 1) * num_chunks // num_parts * CHUNK)
        if start < end:
            queries = _queries(query, keys, segments[:, segment], head, scaling)
            own = scores[segment, head, : queries.shape[0]]
            _score(queries, keys, values, segments[:, segment], window, num_first, head, start, end, own)
    for unit in prange(num_segments * num_kv_heads * num_parts):
        part, rest = unit % num_parts, unit // num_parts
        head, segment = rest % num_kv_heads, rest // num_kv_heads
        num_queries = segments[1, segment] * group
        length = _keys_of(segments[:, segment], window, num_first)[2]
        rows = part * num_queries // num_parts, (part + 1) * num_queries // num_parts
        if rows[0] < rows[1]:
            used = (length + CHUNK - 1) // CHUNK * CHUNK
            own = scores[segment, head, rows[0] : rows[1], :used]
            _blend(own, values, segments[:, segment], visible, window, num_first, softcap, head, rows, out)


@njit(nogil=True, cache=True, error_model="numpy")
def scratch_size(segments: Ints, num_heads: int, num_kv_heads: int) -> int:
    """Return how many numbers `attend` needs memory for; allocated once for all layers of a pass, as fresh memory is slow."""
    if not _is_together(segments, num_heads, num_kv_heads):
        return 0
    most, width = _largest(segments)
    size: int = segments.shape[1] * num_heads * most * width
    return size


@njit(inline="always")
def _is_together(segments: Ints, num_heads: int, num_kv_heads: int) -> bool:
    """Return whether threads share the work on each head: there are few heads, and all scores fit in a cache."""
    most, width = _largest(segments)
    num_segments: int = segments.shape[1]
    is_small = num_segments * num_heads * most * width <= _MOST_SCORES
    return num_segments * num_kv_heads <= _FEW_HEADS and is_small


@njit(inline="always")
def _largest(segments: Ints) -> tuple[int, int]:
    """Return the largest number of rows of a segment, and the length of the longest row of scores."""
    most = longest = 0
    for s in range(segments.shape[1]):
        most = max(most, segments[1, s])
        longest = max(longest, segments[3, s] + segments[1, s])
    return most, (longest + CHUNK - 1) // CHUNK * CHUNK


@njit(inline="always")
def _keys_of(segment: Ints, window: int, num_first: int) -> tuple[int, int, int]:
    """Return which positions of a segment are read, and how many keys these are.

    They are those from the first number on, a multiple of `CHUNK`, and before them as many as the second says from position 0
    on: `CHUNK` or none.
    """
    common = segment[3] - max(segment[4], 0)
    first = max(0, common - window + 1) // CHUNK * CHUNK
    ahead = CHUNK if num_first and first else 0
    return first, ahead, segment[3] + segment[1] - first + ahead


@njit(nogil=True, error_model="numpy")
def _score(
    queries: Any, keys: Stored, values: Stored, segment: Ints, window: int, num_first: int, head: int, start: int, end: int,
    scores: Floats,
) -> None:  # fmt: skip
    """Write the scores of a segment's keys `start` to `end`, of those that `_keys_of` counts, to `scores [n, W]`."""
    first, ahead, _ = _keys_of(segment, window, num_first)
    if start < ahead:
        score_keys(queries, keys, values, segment[2], head, ahead, scores)
        start = ahead
    if start < end:
        slot = segment[2] + first + start - ahead
        score_keys(queries, keys, values, slot, head, end - start, scores[:, start:])


@njit(nogil=True, error_model="numpy")
def _queries(query: Floats, keys: Stored, segment: Ints, head: int, scaling: np.float32) -> Any:
    """Return a segment's scaled queries of one key-value head, row by row, in the form of `as_multiplied`."""
    group = query.shape[1] // keys.shape[1]
    scaled = np.empty((segment[1] * group, query.shape[2]), np.float32)
    for r in range(scaled.shape[0]):
        for d in range(scaled.shape[1]):
            scaled[r, d] = query[segment[0] + r // group, head * group + r % group, d] * scaling
    return as_multiplied(scaled, keys)


@njit(nogil=True, error_model="numpy")
def _blend(
    scores: Floats, values: Stored, segment: Ints, visible: npt.NDArray[np.bool_], window: int, num_first: int,
    softcap: np.float32, head: int, rows: tuple[int, int], out: Floats,
) -> None:  # fmt: skip
    """Write the attention output of some of a segment's queries of one key-value head.

    Args:
        scores: `[n, W]` of these queries, overwritten; W a multiple of `CHUNK`.
        rows: index of the first of these queries, and of the one after the last.
        out: `[T, H, Dv]`.
    """
    group = out.shape[1] // values.shape[1]
    row, count, before, branched = segment[0], segment[1], segment[3], segment[4]
    first, ahead, length = _keys_of(segment, window, num_first)
    skipped = first - ahead
    common = before - max(branched, 0) - skipped
    masses = np.empty(rows[1] - rows[0], np.float32)
    for r in range(rows[1] - rows[0]):
        local = (rows[0] + r) // group
        if softcap > 0:
            cap_scores(scores[r], softcap)
        if branched >= 0:
            seen, own = visible[row + local], scores[r, common:]
            num_own = close_up(own, seen, branched + count)
            masses[r] = weigh(scores[r], common + num_own, window, num_first)
            spread(own, seen, branched + count, num_own)
        else:
            masses[r] = weigh(scores[r], before - skipped + local + 1, window, num_first)
    sums = floats((rows[1] - rows[0]) * values.shape[2]).reshape(rows[1] - rows[0], values.shape[2])
    row_blends(scores[:, ahead:], values, segment[2] + first, head, length - ahead, sums)
    if ahead:
        firsts = floats(sums.size).reshape(sums.shape)
        row_blends(scores, values, segment[2], head, ahead, firsts)
        sums += firsts
    for r in range(rows[1] - rows[0]):
        place = rows[0] + r
        for d in range(values.shape[2]):
            out[row + place // group, head * group + place % group, d] = sums[r, d] / masses[r]


@njit(inline="always")
def _is_by_heads(segments: Ints) -> bool:
    """Return whether threads divide the heads of every request among them, rather than the requests.

    The work per thread is then equal. But the keys of a position's heads are adjacent in memory, so threads that are
    bound by reading contexts disturb each other. It is therefore done for pieces of prompts, and if one context is longer
    than all others together.
    """
    num_rows = longest = total = 0
    for s in range(segments.shape[1]):
        num_rows += segments[1, s]
        length = segments[1, s] + segments[3, s]
        longest = max(longest, length)
        total += length
    return num_rows >= _MANY_ROWS * segments.shape[1] or 2 * longest > total


def compiled_attention(
    query: torch.Tensor,
    rows: tuple[Stored, Stored],
    segments: SegmentArrays,
    window: int | None,
    scaling: float,
    softcap: float | None = None,
) -> torch.Tensor:
    """Return `attend` for a query tensor `[T, H, Dk]`; `rows` are the layer's keys and values."""
    keys, values = rows
    out = np.empty((query.shape[0], query.shape[1], values.shape[2]), np.float32)
    attend(
        query.contiguous().numpy(), keys, values, segments.table, segments.visible,
        NO_WINDOW if window is None else window, 0, np.float32(scaling), np.float32(softcap or 0.0),
        floats(scratch_size(segments.table, query.shape[1], keys.shape[1])), out,
    )  # fmt: skip
    return torch.from_numpy(out)


def is_host_float32(*tensors: torch.Tensor) -> bool:
    """Return whether all tensors are float32 on the CPU."""
    return all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors)
