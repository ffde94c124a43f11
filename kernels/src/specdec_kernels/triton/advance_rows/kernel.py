"""The numbers of a draft loop after a verdict as a Triton kernel: one program for all requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.launch import LaunchConfig, power_of_two, roomy

if TYPE_CHECKING:
    from specdec_kernels.triton.advance_rows import LoopRows, Masks

_LEAST_ROWS = 32
_LEAST_REQUESTS = 16


@triton.jit(
    do_not_specialize=["num_rows", "num_requests", "size", "most_new", "mask_id", "num_more", "most_masks"],
    do_not_specialize_on_alignment=["first_slots_ptr", "depths_ptr", "verdict_ptr"],
)
def advance_rows_kernel(
    token_ids_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    slots_ptr: tl.tensor,
    query_starts_ptr: tl.tensor,
    context_lens_ptr: tl.tensor,
    last_rows_ptr: tl.tensor,
    cached_ptr: tl.tensor,
    next_positions_ptr: tl.tensor,
    first_slots_ptr: tl.tensor,
    depths_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    verdict_ptr: tl.tensor,
    memory_ptr: tl.tensor,
    num_rows: tl.tensor,
    num_requests: tl.tensor,
    size: tl.tensor,
    most_new: tl.tensor,
    mask_id: tl.tensor,
    num_more: tl.tensor,
    most_masks: tl.tensor,
    BLOCK_REQUESTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
) -> None:
    """Write the rows of all requests, place by place within a request, then the padding rows."""
    is_due = tl.load(verdict_ptr)
    if is_due > 0:
        requests = tl.arange(0, BLOCK_REQUESTS)
        in_table = requests < size
        depths = tl.load(depths_ptr + requests, mask=in_table, other=0)
        is_real = depths > 0
        counts = tl.load(memory_ptr + tl.load(verdict_ptr + 1) + requests, mask=is_real, other=-1)
        num_left = tl.minimum(counts, tl.maximum(depths + 1 - most_new, 0))
        num_new = tl.where(is_real, counts + 1 - num_left, 0)
        next_positions = tl.load(next_positions_ptr + requests, mask=is_real, other=0) + counts + 1
        room = tl.load(ends_ptr + requests, mask=is_real, other=0) - next_positions - 1
        next_depths = tl.maximum(tl.minimum(depths, room), 1)
        num_masks = tl.where(is_real & (most_masks > 0), next_depths + num_more, 0)
        ends = tl.cumsum(num_new + num_masks, 0)
        starts = ends - num_new - num_masks
        first = tl.load(cached_ptr + requests, mask=is_real, other=0) + num_left
        places = tl.load(first_slots_ptr + requests, mask=is_real, other=0)
        tokens_ptr = memory_ptr + tl.load(verdict_ptr + 2) + requests * tl.load(verdict_ptr + 3) + num_left
        for step in range(most_new):
            is_row = step < num_new
            tl.store(token_ids_ptr + starts + step, tl.load(tokens_ptr + step, mask=is_row), mask=is_row)
            tl.store(positions_ptr + starts + step, first + step, mask=is_row)
            tl.store(slots_ptr + starts + step, places + first + step, mask=is_row)
        after = first + num_new
        for step in range(most_masks):
            is_row = step < num_masks
            behind = starts + num_new + step
            tl.store(token_ids_ptr + behind, tl.zeros_like(ends) + mask_id, mask=is_row)
            tl.store(positions_ptr + behind, after + step, mask=is_row)
            tl.store(slots_ptr + behind, places + after + step, mask=is_row)
        tl.store(next_positions_ptr + requests, next_positions, mask=is_real)
        tl.store(depths_ptr + requests, next_depths, mask=is_real)
        tl.store(cached_ptr + requests, after, mask=is_real)
        tl.store(
            context_lens_ptr + requests, tl.where(is_real, after + num_masks, 0), mask=requests < num_requests
        )
        tl.store(query_starts_ptr + 1 + requests, ends, mask=requests < num_requests)
        tl.store(last_rows_ptr + requests, tl.where(is_real, starts + num_new - 1, 0), mask=in_table)
        total = tl.sum(num_new + num_masks, 0)
        for begin in range(0, num_rows, BLOCK_ROWS):
            rows = begin + tl.arange(0, BLOCK_ROWS)
            is_padding = (rows >= total) & (rows < num_rows)
            tl.store(token_ids_ptr + rows, tl.zeros((BLOCK_ROWS,), tl.int64), mask=is_padding)
            tl.store(positions_ptr + rows, tl.zeros((BLOCK_ROWS,), tl.int64), mask=is_padding)
            tl.store(slots_ptr + rows, tl.full((BLOCK_ROWS,), -1, tl.int64), mask=is_padding)
    tl.debug_barrier()
    tl.store(verdict_ptr, 1)


def heuristic(num_rows: int) -> LaunchConfig:
    """Return a configuration in which a thread of the one program's only warp writes few padding rows at once."""
    return LaunchConfig(power_of_two(num_rows, _LEAST_ROWS, 128))


def advance_rows_triton(
    rows: LoopRows, memory: torch.Tensor, most_new: int, masks: Masks, config: LaunchConfig | None
) -> None:
    """Launch the kernel; writes the rows."""
    config = config or heuristic(len(rows.token_ids))
    num_requests = len(rows.context_lens)
    advance_rows_kernel[(1,)](
        *rows,
        memory,
        len(rows.token_ids),
        num_requests,
        len(rows.cached),
        most_new,
        *masks,
        BLOCK_REQUESTS=roomy(num_requests, _LEAST_REQUESTS),
        BLOCK_ROWS=config.block,
        num_warps=1,
    )
