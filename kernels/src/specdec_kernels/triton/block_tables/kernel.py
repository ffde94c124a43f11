"""Block tables as a Triton kernel: a program per part of a request's table."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.launch import LaunchConfig, row_blocks


@triton.jit
def block_tables_kernel(
    first_blocks_ptr: tl.tensor,
    num_shared_ptr: tl.tensor,
    shared_blocks_ptr: tl.tensor,
    out_ptr: tl.tensor,
    width: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """Write `BLOCK` columns of one table."""
    request = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first, shared = tl.load(first_blocks_ptr + request), tl.load(shared_blocks_ptr + request)
    is_shared = columns < tl.load(num_shared_ptr + request)
    blocks = tl.where(is_shared, shared, first) + columns
    tl.store(out_ptr + request * width + columns, blocks, mask=columns < width)


def block_tables_triton(
    first_blocks: torch.Tensor,
    num_shared: torch.Tensor,
    shared_blocks: torch.Tensor,
    width: int,
    out: torch.Tensor,
    config: LaunchConfig | None,
) -> None:
    """Launch the kernel; writes `out`."""
    config = config or row_blocks(width)
    grid = (len(out), triton.cdiv(width, config.block))
    block_tables_kernel[grid](
        first_blocks, num_shared, shared_blocks, out, width, BLOCK=config.block, num_warps=config.num_warps
    )
