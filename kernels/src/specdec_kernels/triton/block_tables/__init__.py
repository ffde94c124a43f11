"""`block_tables`: where the context of each request is in a paged cache, from a few numbers per request."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import check_tensor, shown
from specdec_kernels.triton.block_tables.reference import block_tables_reference
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.launch import LaunchConfig

__all__ = ["block_tables"]


def block_tables(
    first_blocks: torch.Tensor,
    num_shared: torch.Tensor,
    shared_blocks: torch.Tensor,
    width: int,
    *,
    out: torch.Tensor | None = None,
    config: LaunchConfig | None = None,
) -> torch.Tensor:
    """Return the blocks of contexts in two runs: first blocks that requests may share, then the request's own.

    Column c of a request is block `shared_blocks + c` if c is below `num_shared`, else `first_blocks + c`. Blocks are not
    checked: attention reads only those of the context. Nothing is copied to the host.

    Args:
        first_blocks: `[B]` int64 where column 0 would be if all blocks were the request's own; may be negative.
        num_shared: `[B]` int64 number of shared blocks.
        shared_blocks: `[B]` int64 the first of them.
        width: M, columns.
        out: `[B, M]` int64, written; None allocates it.
        config: launch parameters of the Triton kernel; None uses the heuristic.

    Returns:
        `[B, M]` int64.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    if first_blocks.dim() != 1:
        raise ValueError(f"first_blocks must be int64 [B], not {shown(first_blocks)}")
    given = {"first_blocks": first_blocks, "num_shared": num_shared, "shared_blocks": shared_blocks}
    for name, numbers in given.items():
        check_tensor(name, numbers, first_blocks.shape, (torch.int64,), first_blocks)
    if out is None:
        out = first_blocks.new_empty((len(first_blocks), width))
    check_tensor("out", out, (len(first_blocks), width), (torch.int64,), first_blocks)
    if out.numel() == 0:
        return out
    if backend_for(first_blocks) is Backend.REFERENCE:
        return out.copy_(block_tables_reference(first_blocks, num_shared, shared_blocks, width))
    from specdec_kernels.triton.block_tables.kernel import block_tables_triton  # imports Triton

    block_tables_triton(first_blocks, num_shared, shared_blocks, width, out, config)
    return out
