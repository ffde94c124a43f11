"""Attention of a few rows per request over contiguous cache rows, float32, one call for the whole batch."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache

import numba
import numpy as np
import numpy.typing as npt
import torch
from numba import njit, prange
from numba.core import config

from specdec.runner.host.blend import row_blends
from specdec.runner.host.prefetch import prefetch
from specdec.runner.host.product import dot
from specdec.runner.host.softmax import CHUNK, close_up, spread, weigh
from specdec.runner.host.tile import TILE_WEIGHTS, row_tiles
from specdec.runner.kv_cache import Stored
from specdec.runner.packed import PackedBatch

logger = logging.getLogger("specdec")

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
MAX_ROWS = 32
"""The most rows of one request that this path takes; longer pieces are faster as matrix products."""
NO_WINDOW = 2**31 - 1
_MANY_ROWS = 8
"""Rows of a request, on average, from which on attention takes longer to compute than to read."""
_KEYS_AHEAD = 16
"""How many keys before they are read they are prefetched: one head's lie apart, which the processor does not foresee."""


@dataclass(slots=True)
class HostSegments:
    """The segments of a pass as arrays, made once per pass."""

    table: Ints
    """`[5, S]` first row; number of rows; slot of position 0; rows in the cache before the pass; how many of these, the last
    ones, are branches that not every new row sees, or -1 for a chain."""
    visible: npt.NDArray[np.bool_]
    """`[T, W]` which of those branches, and then which new rows of its request, each row of a tree sees; empty if all segments
    are chains."""


def is_short(batch: PackedBatch) -> bool:
    """Return whether no request has more rows than this path is the fastest for."""
    return all(segment.num_rows <= MAX_ROWS for segment in batch.segments)


def host_segments(batch: PackedBatch) -> HostSegments:
    """Return the segments of a pass as arrays."""
    segments = batch.segments
    visible = np.empty((0, 0), np.bool_)
    if any(segment.tree_mask is not None for segment in segments):
        width = max(s.num_branched + s.num_rows for s in segments)
        visible = np.zeros((batch.token_ids.shape[0], width), np.bool_)
        for s in segments:
            if s.tree_mask is not None:
                visible[s.row : s.row + s.num_rows, : s.tree_mask.shape[1]] = s.tree_mask.numpy()
    table = np.array(
        [
            (s.row, s.num_rows, s.first_slot, s.num_cached, -1 if s.tree_mask is None else s.num_branched)
            for s in segments
        ]
    )
    return HostSegments(table.T.copy(), visible)


@njit(parallel=True, fastmath=True, nogil=True, cache=True, error_model="numpy")
def attend(
    query: Floats,
    keys: Stored,
    values: Stored,
    segments: Ints,
    visible: npt.NDArray[np.bool_],
    window: int,
    scaling: np.float32,
    out: Floats,
) -> None:
    """Attend; the pass's own keys and values are in the cache already.

    A row's output depends, bit for bit, on the tokens that it sees and their order alone: not on other rows, on how many there
    are, or on whether its path is a chain or lies in a tree.

    Args:
        query: `[T, H, Dk]`.
        keys: `[num_slots, Hkv, Dk]`, float32 or the bits of bfloat16.
        values: `[num_slots, Hkv, Dv]`, likewise.
        segments: `[5, S]`, see `HostSegments`.
        visible: see `HostSegments`.
        window: positions that a row sees, itself included, or `NO_WINDOW`.
        scaling: factor on the scores.
        out: `[T, H, Dv]`, written.
    """
    num_heads, key_dim = query.shape[1], query.shape[2]
    num_kv_heads, value_dim = keys.shape[1], values.shape[2]
    group = num_heads // num_kv_heads
    num_segments = segments.shape[1]
    is_by_heads = _is_by_heads(segments)
    for unit in prange(num_segments * num_kv_heads):
        if is_by_heads:
            segment, head = unit % num_segments, unit // num_segments
        else:
            segment, head = unit // num_kv_heads, unit % num_kv_heads
        row, count, base = segments[0, segment], segments[1, segment], segments[2, segment]
        before, branched = segments[3, segment], segments[4, segment]
        is_tree = branched >= 0
        common = before - max(branched, 0)
        first = max(0, common - window + 1) // CHUNK * CHUNK
        length = before + count - first
        width = (length + CHUNK - 1) // CHUNK * CHUNK
        num_queries = count * group
        scaled = np.empty((num_queries, key_dim), np.float32)
        for r in range(num_queries):
            for d in range(key_dim):
                scaled[r, d] = query[row + r // group, head * group + r % group, d] * scaling
        scores = np.empty((num_queries, width), np.float32)
        masses = np.empty(num_queries, np.float32)
        _scores(scaled, keys, values, base + first, head, length, scores)
        for r in range(num_queries):
            local = r // group
            if is_tree:
                seen, own = visible[row + local], scores[r, common - first :]
                num_own = close_up(own, seen, branched + count)
                masses[r] = weigh(scores[r], common - first + num_own, window)
                spread(own, seen, branched + count, num_own)
            else:
                masses[r] = weigh(scores[r], before - first + local + 1, window)
        sums = np.empty((num_queries, value_dim), np.float32)
        row_blends(scores, values, base + first, head, length, sums)
        for r in range(num_queries):
            for d in range(value_dim):
                out[row + r // group, head * group + r % group, d] = sums[r, d] / masses[r]


@njit(inline="always")
def _is_by_heads(segments: Ints) -> bool:
    """Return whether threads share the heads of every request, not the requests.

    That is as long for each of them, but the keys of a position's heads lie side by side: threads that read contexts faster
    than they compute disturb each other. So it is for pieces of prompts, and where one context outweighs all others.
    """
    num_rows = longest = total = 0
    for s in range(segments.shape[1]):
        num_rows += segments[1, s]
        length = segments[1, s] + segments[3, s]
        longest = max(longest, length)
        total += length
    return num_rows >= _MANY_ROWS * segments.shape[1] or 2 * longest > total


@njit(fastmath=True, inline="always", error_model="numpy")
def _scores(
    query: Floats, keys: Stored, values: Stored, start: int, head: int, length: int, out: Floats
) -> None:
    """Write the products of `query [n, D]` with the keys `[L, D]` of one head from slot `start` on to `out [n, W]`, W >= L.

    The values, which come next, are asked for meanwhile.

    Keys that fill no tile of their own are multiplied in one that goes back to keys that are done, or, where there are not
    enough, in tiles of one key each, so that a product has the same bits wherever the last key is.
    """
    num_queries, width = out.shape
    depth = query.shape[1]
    step = keys.strides[0]
    first = keys.ctypes.data + start * step + head * keys.strides[1]
    num_value_bytes = values.shape[2] * values.itemsize
    value_step = values.strides[0]
    first_value = values.ctypes.data + start * value_step + head * values.strides[1]
    is_short = length < TILE_WEIGHTS
    for block in range(length if is_short else (length + TILE_WEIGHTS - 1) // TILE_WEIGHTS):
        j = block if is_short else min(block * TILE_WEIGHTS, length - TILE_WEIGHTS)
        for i in range(TILE_WEIGHTS):
            prefetch(first_value + (j + i) * value_step, num_value_bytes)
        done = row_tiles(
            query, keys, num_queries, query.ctypes.data, depth * 4, first + j * step, 0 if is_short else step,
            out.ctypes.data + j * 4, width * 4, depth, _KEYS_AHEAD * step,
        )  # fmt: skip
        if done < depth:
            for r in range(num_queries):
                for i in range(TILE_WEIGHTS):
                    key = start + j + (0 if is_short else i)
                    out[r, j + i] += dot(query[r], keys[key, head], done)


def host_attention(
    query: torch.Tensor,
    rows: tuple[Stored, Stored],
    segments: HostSegments,
    window: int | None,
    scaling: float,
) -> torch.Tensor:
    """Return `attend` for a query tensor `[T, H, Dk]`; `rows` are the layer's keys and values."""
    keys, values = rows
    out = np.empty((query.shape[0], query.shape[1], values.shape[2]), np.float32)
    attend(
        query.contiguous().numpy(), keys, values, segments.table, segments.visible,
        NO_WINDOW if window is None else window, np.float32(scaling), out,
    )  # fmt: skip
    return torch.from_numpy(out)


def is_host_float32(*tensors: torch.Tensor) -> bool:
    """Return whether all tensors are float32 on the host."""
    return all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors)


@cache
def is_available() -> bool:
    """Return whether numba can share the processor with torch here; tried once, with a tiny call.

    numba must use OpenMP, as torch does: with its own thread pool the two wait for each other.
    """
    try:
        if config.THREADING_LAYER == "default":  # type: ignore[attr-defined]  # made from the environment
            config.THREADING_LAYER = "omp"  # type: ignore[attr-defined]  # ditto
        # The pool is made by the first call and never shrinks; threads that only wait would still disturb the others.
        most: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # ditto
        config.NUMBA_NUM_THREADS = min(torch.get_num_threads(), most)  # type: ignore[attr-defined]  # ditto
        one = np.ones((1, 1, 4), np.float32)
        segment = np.array([[0], [1], [0], [0], [-1]])
        attend(one, one, one, segment, np.empty((0, 0), np.bool_), NO_WINDOW, np.float32(1), one)
    except Exception as error:  # whatever a platform's threading raises, torch's own attention works
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        logger.warning(
            "compiled loops do not run here (%s: %s); torch's operations are taken, two to four times slower at small batches",
            type(error).__name__, reason,
        )  # fmt: skip
        return False
    return True


def use_threads() -> None:
    """Use as many threads as torch does."""
    most: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # made from the environment
    numba.set_num_threads(min(torch.get_num_threads(), most))
