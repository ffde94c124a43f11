"""Root-mean-square norm as a Triton kernel: a program per row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(
    x_ptr: tl.tensor,
    residual_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    normed_ptr: tl.tensor,
    total_ptr: tl.tensor,
    x_stride: tl.tensor,
    residual_stride: tl.tensor,
    normed_stride: tl.tensor,
    total_stride: tl.tensor,
    EPSILON: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Add and normalize one row `[SIZE]`; it is read completely before it is written, so outputs may alias inputs."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < SIZE
    total = tl.load(x_ptr + row * x_stride + columns, mask=mask, other=0.0)
    if residual_ptr is not None:
        residual = tl.load(residual_ptr + row * residual_stride + columns, mask=mask, other=0.0)
        total = (total.to(tl.float32) + residual.to(tl.float32)).to(total.dtype)
    wide = total.to(tl.float32)
    mean = tl.sum(wide * wide, 0) / SIZE
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    normed = wide * (1.0 / tl.sqrt_rn(mean + EPSILON)) * weight
    if residual_ptr is not None:
        tl.store(total_ptr + row * total_stride + columns, total, mask=mask)
    tl.store(normed_ptr + row * normed_stride + columns, normed.to(total.dtype), mask=mask)


def heuristic(size: int) -> int:
    """Return the warps of a program for rows of `size` elements; a model always uses the same number."""
    return 1 if size <= 256 else 4 if size <= 2048 else 8 if size <= 8192 else 16


def rms_norm_triton(
    x: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    residual: torch.Tensor | None,
    normed: torch.Tensor,
    total: torch.Tensor | None,
    num_warps: int | None,
) -> None:
    """Launch the kernel; writes `normed [T, H]` and, with a residual, `total [T, H]`."""
    num_rows, size = x.shape
    rms_norm_kernel[(num_rows,)](
        x,
        residual,
        weight,
        normed,
        total,
        x.stride(0),
        0 if residual is None else residual.stride(0),
        normed.stride(0),
        0 if total is None else total.stride(0),
        EPSILON=epsilon,
        SIZE=size,
        BLOCK=triton.next_power_of_2(size),
        num_warps=num_warps or heuristic(size),
    )
