"""Attention of a few rows per request over contiguous cache rows, float32, one call for the whole batch.

Nothing here is compiled with `fastmath`: it would allow reordering every instruction of a function, including those of
the hand-written loops, whose fixed order makes a row's result batch-invariant.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import torch

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.jobs import call_of, job_of
from specdec_kernels.cpu.compiled.team import make_team, part_of, run_with_team, share
from specdec_kernels.cpu.loops.heads import blend_head, head_functions, keys_of, score_head
from specdec_kernels.cpu.loops.memory import floats, keep
from specdec_kernels.cpu.loops.pointer import array_at
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


class Work(NamedTuple):
    """What `attend` is given; arrays by address, as threads that share arrays wait to count references."""

    query: int
    num_heads: int
    key_dim: int
    keys: int
    values: int
    num_slots: int
    num_kv_heads: int
    score: int
    blend: int
    segments: int
    num_segments: int
    visible: int
    num_visible: int
    window: int
    num_first: int
    scaling: np.float32
    softcap: np.float32
    out: int
    value_dim: int


@njit(nogil=True, error_model="numpy")
def attend(
    team: int,
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
        team: address of the team whose threads attend; see `make_team`.
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
    num_segments, num_heads = segments.shape[1], query.shape[1]
    work = Work(
        query.ctypes.data, num_heads, query.shape[2], keys, values, num_slots, num_kv_heads, score, blend,
        segments.ctypes.data, num_segments, visible.ctypes.data, visible.shape[1], window, num_first, scaling, softcap,
        out.ctypes.data, out.shape[2],
    )  # fmt: skip
    num_scores, group = _num_scores(segments, num_heads), num_heads // num_kv_heads
    if num_segments * num_kv_heads <= _FEW_HEADS and 0 < num_scores <= scratch.shape[0]:
        # Several threads per head: each first takes a part of the keys, then a part of the rows.
        most, width = _largest(segments)
        split, size = max(2, _FEW_HEADS // (num_segments * num_kv_heads)), 4 * most * group * width
        share(team, job_of(_score_parts, (work, split, scratch.ctypes.data, size, width)))
        share(team, job_of(_blend_parts, (work, split, scratch.ctypes.data, size, width)))
    else:
        share(team, job_of(_attend_heads, (work, _is_by_heads(segments))))


@njit(inline="always")
def _score(work: Work, segment: int, head: int, start: int, end: int, scores: int, width: int) -> None:
    """Write scores of a head's keys to an address; see `score_head`."""
    score_head(work.score, (
        work.query, work.num_heads, work.key_dim, work.keys, work.num_slots, work.num_kv_heads, work.values, work.value_dim,
        work.segments, work.num_segments, segment, head, work.window, work.num_first, start, end, work.scaling, scores, width,
    ))  # fmt: skip


@njit(inline="always")
def _blend(work: Work, segment: int, head: int, begin: int, end: int, scores: int, width: int) -> None:
    """Write the output of some of a head's queries; see `blend_head`."""
    blend_head(work.blend, (
        scores, width, begin, end, work.values, work.num_slots, work.num_kv_heads, work.segments, work.num_segments, segment,
        head, work.window, work.num_first, work.visible, work.num_visible, work.softcap, work.out, work.num_heads,
        work.value_dim,
    ))  # fmt: skip


@njit(nogil=True, error_model="numpy")
def _attend_heads(work: Work, is_by_heads: bool, part: int, num_parts: int) -> None:
    """Attend with a part of the heads of all segments."""
    segments = array_at(work.segments, (5, work.num_segments), np.int64)
    num_units = work.num_segments * work.num_kv_heads
    for unit in part_of(num_units, part, num_parts):
        if is_by_heads:
            segment, head = unit % work.num_segments, unit // work.num_segments
        else:
            segment, head = unit // work.num_kv_heads, unit % work.num_kv_heads
        length = keys_of(segments, segment, work.window, work.num_first)[2]
        num_queries = segments[1, segment] * (work.num_heads // work.num_kv_heads)
        width = (length + CHUNK - 1) // CHUNK * CHUNK
        scores = floats(num_queries * width)
        _score(work, segment, head, 0, length, scores.ctypes.data, width)
        _blend(work, segment, head, 0, num_queries, scores.ctypes.data, width)
        keep(scores)


@njit(nogil=True, error_model="numpy")
def _score_parts(
    work: Work, split: int, scores: int, size: int, width: int, part: int, num_parts: int
) -> None:
    """Score a part of the keys of all heads, each head's keys in `split` pieces.

    Args:
        work: what is attended.
        split: see above.
        scores: address of the scores of all heads.
        size: bytes of the scores of a head.
        width: scores of a query.
        part: which part.
        num_parts: of how many.
    """
    segments = array_at(work.segments, (5, work.num_segments), np.int64)
    num_units = work.num_segments * work.num_kv_heads * split
    for unit in part_of(num_units, part, num_parts):
        piece, rest = unit % split, unit // split
        head, segment = rest % work.num_kv_heads, rest // work.num_kv_heads
        length = keys_of(segments, segment, work.window, work.num_first)[2]
        num_chunks = (length + CHUNK - 1) // CHUNK
        start = piece * num_chunks // split * CHUNK
        end = min(length, (piece + 1) * num_chunks // split * CHUNK)
        if start < end:
            _score(work, segment, head, start, end, scores + rest * size, width)


@njit(nogil=True, error_model="numpy")
def _blend_parts(
    work: Work, split: int, scores: int, size: int, width: int, part: int, num_parts: int
) -> None:
    """Write a part of the output of all heads, each head's queries in `split` pieces; see `_score_parts`."""
    segments = array_at(work.segments, (5, work.num_segments), np.int64)
    num_units = work.num_segments * work.num_kv_heads * split
    for unit in part_of(num_units, part, num_parts):
        piece, rest = unit % split, unit // split
        head, segment = rest % work.num_kv_heads, rest // work.num_kv_heads
        num_queries = segments[1, segment] * (work.num_heads // work.num_kv_heads)
        begin, end = piece * num_queries // split, (piece + 1) * num_queries // split
        if begin < end:
            _blend(work, segment, head, begin, end, scores + rest * size, width)


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


@njit(nogil=True, cache=True, error_model="numpy")
def attend_alone(
    team: int, query: Floats, keys: int, values: int, num_slots: int, num_kv_heads: int, score: int, blend: int,
    segments: Ints, visible: npt.NDArray[np.bool_], window: int, num_first: int, scaling: np.float32, softcap: np.float32,
    scratch: Floats, out: Floats,
) -> None:  # fmt: skip
    """As `attend`, by threads that are gathered for it; the arrays are the caller's."""
    run_with_team(team, call_of(attend, (
        team, query, keys, values, num_slots, num_kv_heads, score, blend, segments, visible, window, num_first, scaling,
        softcap, scratch, out,
    )))  # fmt: skip


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
    num_threads = numba.get_num_threads()
    team = make_team(num_threads)
    scratch = floats(scratch_size(segments, query.shape[1], num_kv_heads, num_threads))
    attend_alone(
        team.ctypes.data, query.contiguous().numpy(), keys.ctypes.data, values.ctypes.data, num_slots, num_kv_heads, score,
        blend, segments, visible, NO_WINDOW if window is None else window, 0, np.float32(scaling),
        np.float32(softcap or 0.0), scratch, out,
    )  # fmt: skip
    return torch.from_numpy(out)


def is_host_float32(*tensors: torch.Tensor) -> bool:
    """Return whether all tensors are float32 on the CPU."""
    return all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors)
