"""Operations of decoder layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from device.kernel_case import KernelCase, Problem, num_bytes
from device.sizes import Sizes
from specdec_kernels.triton import matmul_invariant, rms_norm, silu_mul
from specdec_kernels.triton.matmul_invariant.config import LaunchConfig

_EPSILON = 1e-5


def make_rms_norm(sizes: Sizes) -> Problem:
    """The norm in the middle of a layer, with residual add."""
    hidden = sizes.shape.hidden_size
    x, residual = sizes.randn(sizes.num_rows, hidden), sizes.randn(sizes.num_rows, hidden)
    weight = sizes.randn(hidden)

    def call() -> Sequence[torch.Tensor]:
        normed, total = rms_norm(x, weight, epsilon=_EPSILON, residual=residual)
        assert total is not None
        return normed, total

    def torch_call() -> Sequence[torch.Tensor]:
        total = x + residual
        return F.rms_norm(total, (hidden,), weight, _EPSILON), total

    moved = 2 * num_bytes(x, residual) + num_bytes(weight)
    return Problem(call, moved, torch_call, "F.rms_norm", tolerance=2 * torch.finfo(sizes.dtype).eps)


def make_silu_mul(sizes: Sizes) -> Problem:
    """The gated activation of the feed-forward block, over a fused gate and up projection."""
    inner = sizes.shape.intermediate_size
    gate, up = sizes.randn(sizes.num_rows, 2 * inner).split(inner, 1)

    def call() -> Sequence[torch.Tensor]:
        return (silu_mul(gate, up),)

    def torch_call() -> Sequence[torch.Tensor]:
        return (F.silu(gate) * up,)

    moved = 3 * num_bytes(gate)
    return Problem(call, moved, torch_call, "F.silu", tolerance=2 * torch.finfo(sizes.dtype).eps)


def make_matmul_invariant(
    sizes: Sizes, widths: tuple[int, int] | None = None, config: LaunchConfig | None = None
) -> Problem:
    """A linear layer, by default the down projection of the feed-forward block; `widths` are those of output and input."""
    num_out, depth = widths or (sizes.shape.hidden_size, sizes.shape.intermediate_size)
    x = sizes.randn(sizes.num_rows, depth)
    weight = sizes.randn(num_out, depth) * depth**-0.5

    def call() -> Sequence[torch.Tensor]:
        return (matmul_invariant(x, weight, config=config),)

    def torch_call() -> Sequence[torch.Tensor]:
        return (F.linear(x, weight),)

    moved = num_bytes(x, weight) + sizes.num_rows * num_out * sizes.dtype.itemsize
    # Sums of thousands of float32 numbers in a different order; on a GPU float32 products may also use fewer bits.
    return Problem(call, moved, torch_call, "F.linear", tolerance=max(1e-5, 2 * torch.finfo(sizes.dtype).eps))


CASES = (
    KernelCase("rms_norm", "with residual", make_rms_norm),
    KernelCase("silu_mul", "joined projection", make_silu_mul),
    KernelCase("matmul_invariant", "down projection", make_matmul_invariant),
)
