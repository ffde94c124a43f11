"""Penalties as a Triton kernel: a program per part of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.launch import LaunchConfig, roomy
from specdec_kernels.triton.strict_verify.kernel import parent_of

if TYPE_CHECKING:
    from specdec_kernels.triton.penalise import PathRows, Texts

_PAIRS = 4096
_LEAST_PATH = 16
GREATEST = tl.constexpr(3.4028234663852886e38)
_BLOCK_ROW, _NUM_BLOCKS = 2048, 8
"""Logits that a program copies at once, and how often."""


@triton.jit
def lower(
    row_ptr: tl.tensor,
    out_ptr: tl.tensor,
    ids: tl.tensor,
    mask: tl.tensor,
    counts: tl.tensor,
    penalties_ptr: tl.tensor,
    num_requests: tl.tensor,
) -> None:
    """Lower the logits of some ids of a row, which occurred, `counts` times of these in the output."""
    logits = tl.load(row_ptr + ids, mask=mask, other=0.0)
    repetition = tl.zeros_like(logits) + tl.load(penalties_ptr)
    logits = tl.where(logits > 0.0, tl.div_rn(logits, repetition), logits * repetition)
    logits -= tl.load(penalties_ptr + 2 * num_requests) * counts
    logits -= tl.where(counts > 0.0, tl.load(penalties_ptr + num_requests), 0.0)
    tl.store(out_ptr + ids, tl.where(logits > GREATEST, GREATEST, logits), mask=mask)


@triton.jit
def place_of(rows_ptr: tl.tensor, row: tl.tensor, num_places: tl.tensor, BLOCK: tl.constexpr) -> tl.tensor:
    """Return where a row is among those that are changed; -1 if it is not."""
    place = tl.full((), -1, tl.int64)
    for first in range(0, num_places, BLOCK):
        places = first + tl.arange(0, BLOCK)
        rows = tl.load(rows_ptr + places, mask=places < num_places, other=-1)
        place = tl.maximum(place, tl.max(tl.where(rows == row, places.to(tl.int64), -1), 0))
    return place


@triton.jit(do_not_specialize=["num_requests", "num_places"])
def penalise_kernel(
    logits_ptr: tl.tensor,
    row_stride: tl.tensor,
    out_ptr: tl.tensor,
    out_stride: tl.tensor,
    ids_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    starts_ptr: tl.tensor,
    penalties_ptr: tl.tensor,
    num_requests: tl.tensor,
    rows_ptr: tl.tensor,
    num_places: tl.tensor,
    requests_ptr: tl.tensor,
    firsts_ptr: tl.tensor,
    nodes_ptr: tl.tensor,
    drafted_ptr: tl.tensor,
    parents_ptr: tl.tensor,
    vocab_size: tl.tensor,
    IS_IN_PLACE: tl.constexpr,
    HAS_PARENTS: tl.constexpr,
    BLOCK_PATH: tl.constexpr,
    BLOCK_IDS: tl.constexpr,
    BLOCK_ROW: tl.constexpr,
    NUM_BLOCKS: tl.constexpr,
) -> None:
    """Copy a part of one row, and lower there first the ids of its text, then those that occur on its path alone."""
    row = tl.program_id(0).to(tl.int64)
    begin = tl.program_id(1) * BLOCK_ROW * NUM_BLOCKS
    stop = tl.minimum(begin + BLOCK_ROW * NUM_BLOCKS, vocab_size)
    logits_ptr += row * row_stride
    out_ptr += row * out_stride
    if not IS_IN_PLACE:
        for block in range(NUM_BLOCKS):
            own = begin + block * BLOCK_ROW + tl.arange(0, BLOCK_ROW)
            tl.store(out_ptr + own, tl.load(logits_ptr + own, mask=own < stop), mask=own < stop)
        tl.debug_barrier()
    place = place_of(rows_ptr, row, num_places, BLOCK_IDS)
    if place >= 0:
        request = tl.load(requests_ptr + place)
        penalties_ptr += request
        steps = tl.arange(0, BLOCK_PATH)
        path = tl.full((BLOCK_PATH,), -1, tl.int64)
        first = tl.load(firsts_ptr + place)
        node = tl.load(nodes_ptr + place)
        step = 0
        while node >= 0:  # upwards; the order does not matter
            token = tl.load(drafted_ptr + first + node).to(tl.int64)
            path = tl.where(steps == step, tl.minimum(tl.maximum(token, 0), vocab_size - 1), path)
            node = parent_of(parents_ptr + first, node, HAS_PARENTS)
            step += 1
        is_known = tl.zeros((BLOCK_PATH,), tl.int32)
        start = tl.load(starts_ptr + request)
        end = tl.load(starts_ptr + request + 1)
        for at in range(start, end, BLOCK_IDS):
            places = at + tl.arange(0, BLOCK_IDS)
            is_id = places < end
            ids = tl.load(ids_ptr + places, mask=is_id, other=-2)
            is_same = (ids[:, None] == path[None, :]).to(tl.int32)
            counts = tl.load(counts_ptr + places, mask=is_id, other=0.0) + tl.sum(is_same, 1).to(tl.float32)
            is_known = tl.maximum(is_known, tl.max(is_same, 0))
            is_own = is_id & (ids >= begin) & (ids < stop)
            lower(logits_ptr, out_ptr, ids, is_own, counts, penalties_ptr, num_requests)
        is_same = path[:, None] == path[None, :]
        counts = tl.sum(is_same.to(tl.int32), 1).to(tl.float32)
        num_before = tl.sum((is_same & (steps[None, :] < steps[:, None])).to(tl.int32), 1)
        is_new = (path >= begin) & (path < stop) & (is_known == 0) & (num_before == 0)
        lower(logits_ptr, out_ptr, path, is_new, counts, penalties_ptr, num_requests)


def path_block(path_len: int) -> int:
    """Return how many tokens of a path are compared at once."""
    return roomy(path_len, _LEAST_PATH)


def heuristic(path_len: int) -> LaunchConfig:
    """Return how many ids of a text make a program compare about 4096 pairs at once."""
    return LaunchConfig(max(32, _PAIRS // path_block(path_len)), num_warps=4)


def penalise_triton(
    logits: torch.Tensor, texts: Texts, paths: PathRows, out: torch.Tensor, config: LaunchConfig | None
) -> None:
    """Launch the kernel; writes `out`."""
    config = config or heuristic(paths.path_len)
    num_rows, vocab_size = logits.shape
    links = paths.drafted if paths.parents is None else paths.parents  # not read for chains
    penalise_kernel[(num_rows, triton.cdiv(vocab_size, _BLOCK_ROW * _NUM_BLOCKS))](
        logits,
        logits.stride(0),
        out,
        out.stride(0),
        texts.ids,
        texts.counts,
        texts.starts,
        texts.penalties,
        texts.penalties.shape[1],
        paths.rows,
        len(paths.rows),
        paths.requests,
        paths.firsts,
        paths.nodes,
        paths.drafted,
        links,
        vocab_size,
        IS_IN_PLACE=out.data_ptr() == logits.data_ptr(),
        HAS_PARENTS=paths.parents is not None,
        BLOCK_PATH=path_block(paths.path_len),
        BLOCK_IDS=config.block,
        BLOCK_ROW=_BLOCK_ROW,
        NUM_BLOCKS=_NUM_BLOCKS,
        num_warps=config.num_warps,
        enable_fp_fusion=False,
    )
