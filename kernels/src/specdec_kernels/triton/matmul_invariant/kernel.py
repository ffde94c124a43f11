"""A linear layer as a Triton kernel with a fixed summation order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.matmul_invariant.config import LaunchConfig


@triton.jit(do_not_specialize=["num_rows"])
def matmul_invariant_kernel(
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    out_ptr: tl.tensor,
    num_rows: tl.tensor,
    x_stride: tl.tensor,
    weight_stride: tl.tensor,
    out_stride: tl.tensor,
    NUM_COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
) -> None:
    """Compute one output tile, over the whole depth in ascending order."""
    columns = tl.program_id(0) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    rows = tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    is_row = rows < num_rows
    is_column = columns < NUM_COLUMNS
    x_rows = x_ptr + rows.to(tl.int64)[:, None] * x_stride
    weight_rows = weight_ptr + columns.to(tl.int64)[:, None] * weight_stride
    total = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32)
    for first in range(0, DEPTH, BLOCK_DEPTH):
        depths = first + tl.arange(0, BLOCK_DEPTH)
        in_depth = (depths < DEPTH)[None, :]
        x = tl.load(x_rows + depths[None, :], mask=is_row[:, None] & in_depth, other=0.0)
        weight = tl.load(weight_rows + depths[None, :], mask=is_column[:, None] & in_depth, other=0.0)
        total = tl.dot(x, tl.trans(weight), total, input_precision="ieee")
    if bias_ptr is not None:
        total += tl.load(bias_ptr + columns, mask=is_column, other=0.0).to(tl.float32)[None, :]
    place = rows.to(tl.int64)[:, None] * out_stride + columns[None, :]
    tl.store(out_ptr + place, total.to(out_ptr.dtype.element_ty), mask=is_row[:, None] & is_column[None, :])


def matmul_invariant_triton(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    config: LaunchConfig,
) -> None:
    """Launch the kernel; writes `out [T, N]`."""
    num_rows, depth = x.shape
    num_columns = weight.shape[0]
    grid = triton.cdiv(num_columns, config.block_columns), triton.cdiv(num_rows, config.block_rows)
    matmul_invariant_kernel[grid](
        x,
        weight,
        bias,
        out,
        num_rows,
        x.stride(0),
        weight.stride(0),
        out.stride(0),
        NUM_COLUMNS=num_columns,
        DEPTH=depth,
        BLOCK_ROWS=config.block_rows,
        BLOCK_COLUMNS=config.block_columns,
        BLOCK_DEPTH=config.block_depth,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
