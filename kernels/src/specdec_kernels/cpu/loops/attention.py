"""Attention of a few rows per request over contiguous cache rows, float32, one call for the whole batch.

Nothing here is compiled with `fastmath`: it would allow reordering every instruction of a function, including those of
the hand-written loops, whose fixed order makes a row's result batch-invariant.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt
import torch
from numba import prange

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.loops.heads import blend_head, head_functions, keys_of, score_head
from specdec_kernels.cpu.loops.memory import floats
from specdec_kernels.cpu.loops.segments import Table, Visible
from specdec_kernels.cpu.loops.softmax import CHUNK
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
_LITTLE_WORK, _KEYS_PER_HEAD = 2**14, 48
"""Up to this many numbers of keys, read once for every `_MANY_ROWS` queries, one thread attends: these take about 4 us, and
dividing them among threads twice takes as long. A head takes as long as that many keys before it reads its first."""


@njit(parallel=True, nogil=True, cache=True, error_model="numpy")
def attend(
    query: Floats,
    keys: int,
    values: int,
    num_slots: int,
    num_kv_heads: int,
    score: int,
    blend: int,
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
        keys: address of the layer's keys `[num_slots, Hkv, Dk]`, float32 or the bits of bfloat16.
        values: address of its values `[num_slots, Hkv, Dv]`, likewise.
        num_slots: slots of the cache.
        num_kv_heads: Hkv.
        score: address of the function for such keys; see `head_functions`, like the next one.
        blend: address of the function for such values.
        segments: `[5, S]`, see `Table`.
        visible: see `Visible`.
        window: number of positions that a row sees, itself included, or `NO_WINDOW`.
        num_first: number of positions at the beginning, at most `CHUNK`, that it sees beside these.
        scaling: factor on the scores.
        softcap: scores are `softcap * tanh(score / softcap)`; 0 if they are not.
        scratch: see `scratch_size`.
        out: `[T, H, Dv]`, written.
    """
    num_segments, group = segments.shape[1], query.shape[1] // num_kv_heads
    if _work(segments, window, num_first, group) * num_kv_heads * query.shape[2] <= _LITTLE_WORK:
        for unit in range(num_segments * num_kv_heads):
            segment, head = unit // num_kv_heads, unit % num_kv_heads
            scores = floats(_head_size(segments, segment, group, window, num_first))
            _attend_head(
                query, keys, values, num_slots, num_kv_heads, score, blend, segments, visible, window, num_first, scaling,
                softcap, segment, head, scores, out,
            )  # fmt: skip
        return
    num_scores = _num_scores(segments, query.shape[1])
    if num_segments * num_kv_heads <= _FEW_HEADS and 0 < num_scores <= scratch.shape[0]:
        _attend_together(
            query, keys, values, num_slots, num_kv_heads, score, blend, segments, visible, window, num_first, scaling,
            softcap, scratch, out,
        )  # fmt: skip
        return
    is_by_heads = _is_by_heads(segments)
    for unit in prange(num_segments * num_kv_heads):
        if is_by_heads:
            segment, head = unit % num_segments, unit // num_segments
        else:
            segment, head = unit // num_kv_heads, unit % num_kv_heads
        scores = floats(_head_size(segments, segment, group, window, num_first))
        _attend_head(
            query, keys, values, num_slots, num_kv_heads, score, blend, segments, visible, window, num_first, scaling,
            softcap, segment, head, scores, out,
        )  # fmt: skip


@njit(inline="always")
def _work(segments: Ints, window: int, num_first: int, group: int) -> int:
    """Return how many keys of a head are read, those of a segment once for every `_MANY_ROWS` of its queries."""
    work = 0
    for s in range(segments.shape[1]):
        times = (segments[1, s] * group + _MANY_ROWS - 1) // _MANY_ROWS
        work += _KEYS_PER_HEAD + times * keys_of(segments, s, window, num_first)[2]
    return work


@njit(inline="always")
def _head_size(segments: Ints, segment: int, group: int, window: int, num_first: int) -> int:
    """Return how many scores the queries of a segment and a key-value head have, in whole chunks."""
    width = (keys_of(segments, segment, window, num_first)[2] + CHUNK - 1) // CHUNK * CHUNK
    size: int = segments[1, segment] * group * width
    return size


@njit(nogil=True, error_model="numpy")
def _attend_head(
    query: Floats, keys: int, values: int, num_slots: int, num_kv_heads: int, score: int, blend: int, segments: Ints,
    visible: npt.NDArray[np.bool_], window: int, num_first: int, scaling: np.float32, softcap: np.float32, segment: int,
    head: int, scores: Floats, out: Floats,
) -> None:  # fmt: skip
    """Attend with the queries of a segment and a key-value head; `scores` is memory of `_head_size` numbers.

    It is the caller's: compiled code frees an array of its own once it has taken the address.
    """
    num_heads, length = query.shape[1], keys_of(segments, segment, window, num_first)[2]
    num_queries = segments[1, segment] * (num_heads // num_kv_heads)
    width = (length + CHUNK - 1) // CHUNK * CHUNK
    score_head(score, (
        query.ctypes.data, num_heads, query.shape[2], keys, num_slots, num_kv_heads, values, out.shape[2],
        segments.ctypes.data, segments.shape[1], segment, head, window, num_first, 0, length, scaling, scores.ctypes.data,
        width,
    ))  # fmt: skip
    blend_head(blend, (
        scores.ctypes.data, width, 0, num_queries, values, num_slots, num_kv_heads, segments.ctypes.data,
        segments.shape[1], segment, head, window, num_first, visible.ctypes.data, visible.shape[1], softcap,
        out.ctypes.data, num_heads, out.shape[2],
    ))  # fmt: skip


@njit(parallel=True, nogil=True, error_model="numpy")
def _attend_together(
    query: Floats, keys: int, values: int, num_slots: int, num_kv_heads: int, score: int, blend: int, segments: Ints,
    visible: npt.NDArray[np.bool_], window: int, num_first: int, scaling: np.float32, softcap: np.float32, scratch: Floats,
    out: Floats,
) -> None:  # fmt: skip
    """Attend with several threads per head: each thread first takes a part of the keys, then a part of the rows."""
    num_segments, num_heads, value_dim = segments.shape[1], query.shape[1], out.shape[2]
    group = num_heads // num_kv_heads
    num_parts = max(2, _FEW_HEADS // (num_segments * num_kv_heads))
    most, width = _largest(segments)
    size = 4 * most * group * width  # bytes
    for unit in prange(num_segments * num_kv_heads * num_parts):
        part, rest = unit % num_parts, unit // num_parts
        head, segment = rest % num_kv_heads, rest // num_kv_heads
        length = keys_of(segments, segment, window, num_first)[2]
        num_chunks = (length + CHUNK - 1) // CHUNK
        start = part * num_chunks // num_parts * CHUNK
        end = min(length, (part + 1) * num_chunks // num_parts * CHUNK)
        if start < end:
            score_head(score, (
                query.ctypes.data, num_heads, query.shape[2], keys, num_slots, num_kv_heads, values, value_dim,
                segments.ctypes.data, num_segments, segment, head, window, num_first, start, end, scaling,
                scratch.ctypes.data + rest * size, width,
            ))  # fmt: skip
    for unit in prange(num_segments * num_kv_heads * num_parts):
        part, rest = unit % num_parts, unit // num_parts
        head, segment = rest % num_kv_heads, rest // num_kv_heads
        num_queries = segments[1, segment] * group
        begin, end = part * num_queries // num_parts, (part + 1) * num_queries // num_parts
        if begin < end:
            blend_head(blend, (
                scratch.ctypes.data + rest * size, width, begin, end, values, num_slots, num_kv_heads,
                segments.ctypes.data, num_segments, segment, head, window, num_first, visible.ctypes.data,
                visible.shape[1], softcap, out.ctypes.data, num_heads, value_dim,
            ))  # fmt: skip


@njit(nogil=True, cache=True, error_model="numpy")
def scratch_size(segments: Ints, num_heads: int, num_kv_heads: int, num_threads: int) -> int:
    """Return how many numbers `attend` needs memory for; allocated once for all layers of a pass, as fresh memory is slow.

    It needs none where each head is one thread's work: there are many heads, or each thread gets as many of a request, or
    their scores do not fit in a cache.
    """
    is_few = segments.shape[1] * num_kv_heads <= _FEW_HEADS
    size = _num_scores(segments, num_heads)
    return size if is_few and num_kv_heads % num_threads and size <= _MOST_SCORES else 0


@njit(inline="always")
def _num_scores(segments: Ints, num_heads: int) -> int:
    """Return how many scores there are, if all segments are as long as the longest."""
    most, width = _largest(segments)
    size: int = segments.shape[1] * num_heads * most * width
    return size


@njit(inline="always")
def _largest(segments: Ints) -> tuple[int, int]:
    """Return the largest number of rows of a segment, and the length of the longest row of scores."""
    most = longest = 0
    for s in range(segments.shape[1]):
        most = max(most, segments[1, s])
        longest = max(longest, segments[3, s] + segments[1, s])
    return most, (longest + CHUNK - 1) // CHUNK * CHUNK


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
    segments: Table,
    visible: Visible,
    window: int | None,
    scaling: float,
    softcap: float | None = None,
) -> torch.Tensor:
    """Return `attend` for a query tensor `[T, H, Dk]`; `rows` are the layer's keys and values."""
    keys, values = rows
    num_slots, num_kv_heads = keys.shape[:2]
    score, blend = head_functions(keys.dtype)
    out = np.empty((query.shape[0], query.shape[1], values.shape[2]), np.float32)
    scratch = floats(scratch_size(segments, query.shape[1], num_kv_heads, numba.get_num_threads()))
    attend(
        query.contiguous().numpy(), keys.ctypes.data, values.ctypes.data, num_slots, num_kv_heads, score, blend,
        segments, visible, NO_WINDOW if window is None else window, 0, np.float32(scaling),
        np.float32(softcap or 0.0), scratch, out,
    )  # fmt: skip
    return torch.from_numpy(out)


def is_host_float32(*tensors: torch.Tensor) -> bool:
    """Return whether all tensors are float32 on the CPU."""
    return all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors)
