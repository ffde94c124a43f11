"""The numbers of a pass behind a verdict as a Triton kernel: one program for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.launch import LaunchConfig, power_of_two

if TYPE_CHECKING:
    from specdec_kernels.triton.move_rows import PassRows


@triton.jit
def move_rows_kernel(
    positions_ptr: tl.tensor,
    slots_ptr: tl.tensor,
    sources_ptr: tl.tensor,
    query_starts_ptr: tl.tensor,
    context_lens_ptr: tl.tensor,
    verdict_rows_ptr: tl.tensor,
    verdict_ptr: tl.tensor,
    memory_ptr: tl.tensor,
    NUM_GROWING: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
) -> None:
    """Move the rows of one request, then its other numbers."""
    request = tl.program_id(0)
    row = tl.load(verdict_rows_ptr + request)
    if row >= 0:
        count = tl.load(memory_ptr + tl.load(verdict_ptr) + row)
        first = tl.load(query_starts_ptr + request)
        end = tl.load(query_starts_ptr + request + 1)
        for begin in range(first, end, BLOCK_ROWS):
            rows = begin + tl.arange(0, BLOCK_ROWS)
            is_own = rows < end
            positions = tl.load(positions_ptr + rows, mask=is_own, other=0)
            slots = tl.load(slots_ptr + rows, mask=is_own, other=0)
            tl.store(positions_ptr + rows, positions + count, mask=is_own)
            tl.store(slots_ptr + rows, slots + count, mask=is_own)
        length = tl.load(context_lens_ptr + request)
        tl.store(context_lens_ptr + request, length + count)
        token_at = tl.load(verdict_ptr + 1) + row * tl.load(verdict_ptr + 2) + count
        tl.store(sources_ptr + first, token_at)
        for place in range(3, 3 + NUM_GROWING):
            array = tl.load(verdict_ptr + place)
            if array >= 0:
                number_ptr = memory_ptr + array + request
                tl.store(number_ptr, tl.load(number_ptr) + count)


def heuristic(num_rows: int, num_requests: int) -> LaunchConfig:
    """Return a configuration in which the program of most requests moves its rows in one turn."""
    return LaunchConfig(power_of_two(-(-num_rows // num_requests), 8, 64))


def move_rows_triton(rows: PassRows, memory: torch.Tensor, config: LaunchConfig | None) -> None:
    """Launch the kernel; writes the rows."""
    config = config or heuristic(len(rows.positions), len(rows.context_lens))
    move_rows_kernel[(len(rows.context_lens),)](*rows, memory, len(rows.verdict) - 3, config.block)
