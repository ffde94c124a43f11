"""The rows of emitted tokens as a Triton kernel: a program per row, kind and part of a row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.launch import LaunchConfig, roomy, row_blocks

_LEAST_REQUESTS = 16


@triton.jit(
    do_not_specialize=["num_requests", "num_rows", "num_places", "num_columns", "kind_stride", "row_stride"],
    do_not_specialize_on_alignment=["row_starts_ptr", "num_accepted_ptr", "nodes_ptr"],
)
def accepted_rows_kernel(
    states_ptr: tl.tensor,
    row_starts_ptr: tl.tensor,
    num_accepted_ptr: tl.tensor,
    nodes_ptr: tl.tensor,
    out_ptr: tl.tensor,
    kind_stride: tl.tensor,
    row_stride: tl.tensor,
    num_requests: tl.tensor,
    num_rows: tl.tensor,
    num_places: tl.tensor,
    num_columns: tl.tensor,
    width: tl.tensor,
    IS_TREE: tl.constexpr,
    BLOCK_REQUESTS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Copy `BLOCK` numbers of one row, if a token is emitted there."""
    place, kind = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    requests = tl.arange(0, BLOCK_REQUESTS)
    in_batch = requests < num_requests
    counts = tl.load(num_accepted_ptr + requests, mask=in_batch, other=-1) + 1
    ends = tl.cumsum(counts, 0)
    is_own = (place >= ends - counts) & (place < ends)
    starts = tl.load(row_starts_ptr + requests, mask=in_batch, other=0)
    step = tl.sum(tl.where(is_own, place - (ends - counts), 0), 0)
    if IS_TREE:
        request = tl.sum(tl.where(is_own, requests, 0), 0)
        is_node = (step > 0) & (step <= num_columns)
        step = tl.load(nodes_ptr + request * num_columns + step - 1, mask=is_node, other=-1) + 1
    row = tl.sum(tl.where(is_own, starts, 0), 0) + step
    if (tl.sum(is_own.to(tl.int32), 0) > 0) & (row >= 0) & (row < num_rows):
        columns = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
        in_row = columns < width
        read = tl.load(states_ptr + kind * kind_stride + row * row_stride + columns, mask=in_row)
        tl.store(out_ptr + (kind * num_places + place) * width + columns, read, mask=in_row)


def accepted_rows_triton(
    states: torch.Tensor,
    row_starts: torch.Tensor,
    num_accepted: torch.Tensor,
    nodes: torch.Tensor | None,
    out: torch.Tensor,
    config: LaunchConfig | None,
) -> None:
    """Launch the kernel; writes `out`."""
    config = config or row_blocks(states.shape[2])
    num_kinds, num_places, width = out.shape
    grid = (num_places, num_kinds, triton.cdiv(width, config.block))
    accepted_rows_kernel[grid](
        states,
        row_starts,
        num_accepted,
        num_accepted if nodes is None else nodes,
        out,
        states.stride(0),
        states.stride(1),
        len(row_starts),
        states.shape[1],
        num_places,
        0 if nodes is None else nodes.shape[1],
        width,
        IS_TREE=nodes is not None,
        BLOCK_REQUESTS=roomy(len(row_starts), _LEAST_REQUESTS),
        BLOCK=config.block,
        num_warps=config.num_warps,
    )
