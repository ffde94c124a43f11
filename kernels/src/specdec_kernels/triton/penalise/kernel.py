"""Penalties as a Triton kernel: a program per row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.launch import power_of_two
from specdec_kernels.triton.penalise.config import LaunchConfig

if TYPE_CHECKING:
    from specdec_kernels.triton.penalise import PathRows, Texts

GREATEST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def lower(
    row_ptr: tl.tensor,
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
    tl.store(row_ptr + ids, tl.where(logits > GREATEST, GREATEST, logits), mask=mask)


@triton.jit
def penalise_kernel(
    logits_ptr: tl.tensor,
    row_stride: tl.tensor,
    ids_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    starts_ptr: tl.tensor,
    penalties_ptr: tl.tensor,
    num_requests: tl.tensor,
    rows_ptr: tl.tensor,
    requests_ptr: tl.tensor,
    sources_ptr: tl.tensor,
    drafted_ptr: tl.tensor,
    path_len: tl.tensor,
    BLOCK_PATH: tl.constexpr,
    BLOCK_IDS: tl.constexpr,
) -> None:
    """Lower one row: first the ids of its text, then those that occur on its path alone."""
    place = tl.program_id(0).to(tl.int64)
    request = tl.load(requests_ptr + place)
    row_ptr = logits_ptr + tl.load(rows_ptr + place) * row_stride
    penalties_ptr += request
    steps = tl.arange(0, BLOCK_PATH)
    sources = tl.load(sources_ptr + place * path_len + steps, mask=steps < path_len, other=-1)
    path = tl.load(drafted_ptr + sources, mask=sources >= 0, other=-1).to(tl.int64)
    is_known = tl.zeros((BLOCK_PATH,), tl.int32)
    start = tl.load(starts_ptr + request)
    end = tl.load(starts_ptr + request + 1)
    for first in range(start, end, BLOCK_IDS):
        places = first + tl.arange(0, BLOCK_IDS)
        is_id = places < end
        ids = tl.load(ids_ptr + places, mask=is_id, other=-2)
        is_same = (ids[:, None] == path[None, :]).to(tl.int32)
        counts = tl.load(counts_ptr + places, mask=is_id, other=0.0) + tl.sum(is_same, 1).to(tl.float32)
        is_known = tl.maximum(is_known, tl.max(is_same, 0))
        lower(row_ptr, ids, is_id, counts, penalties_ptr, num_requests)
    is_same = path[:, None] == path[None, :]
    counts = tl.sum(is_same.to(tl.int32), 1).to(tl.float32)
    num_before = tl.sum((is_same & (steps[None, :] < steps[:, None])).to(tl.int32), 1)
    is_new = (path >= 0) & (is_known == 0) & (num_before == 0)
    lower(row_ptr, path, is_new, counts, penalties_ptr, num_requests)


def penalise_triton(logits: torch.Tensor, texts: Texts, paths: PathRows, config: LaunchConfig) -> None:
    """Launch the kernel; writes the logits."""
    num_rows, path_len = paths.sources.shape
    penalise_kernel[(num_rows,)](
        logits,
        logits.stride(0),
        texts.ids,
        texts.counts,
        texts.starts,
        texts.penalties,
        texts.penalties.shape[1],
        paths.rows,
        paths.requests,
        paths.sources,
        paths.drafted,
        path_len,
        BLOCK_PATH=power_of_two(max(1, path_len)),
        BLOCK_IDS=config.block_ids,
        num_warps=config.num_warps,
        enable_fp_fusion=False,
    )
