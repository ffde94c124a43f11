"""The gated activation of a feed-forward layer as a Triton kernel: a program per part of a row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.launch import LaunchConfig, row_blocks


@triton.jit
def silu_mul_kernel(
    gate_ptr: tl.tensor,
    up_ptr: tl.tensor,
    out_ptr: tl.tensor,
    gate_stride: tl.tensor,
    up_stride: tl.tensor,
    out_stride: tl.tensor,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Compute `BLOCK` elements of one row."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < SIZE
    gate = tl.load(gate_ptr + row * gate_stride + columns, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + columns, mask=mask, other=0.0).to(tl.float32)
    decay = tl.exp(-tl.abs(gate))  # at most 1, so nothing overflows
    active = gate * tl.where(gate >= 0.0, 1.0, decay) / (1.0 + decay)
    tl.store(out_ptr + row * out_stride + columns, (active * up).to(out_ptr.dtype.element_ty), mask=mask)


def silu_mul_triton(
    gate: torch.Tensor, up: torch.Tensor, out: torch.Tensor, config: LaunchConfig | None
) -> None:
    """Launch the kernel; writes `out [T, F]`."""
    config = config or row_blocks(gate.shape[1])
    num_rows, size = gate.shape
    silu_mul_kernel[(num_rows, triton.cdiv(size, config.block))](
        gate,
        up,
        out,
        gate.stride(0),
        up.stride(0),
        out.stride(0),
        SIZE=size,
        BLOCK=config.block,
        num_warps=config.num_warps,
    )
