"""How a model keeps the bits of a row whatever else is in the pass, and the operations that do it on a device."""

from __future__ import annotations

from enum import Enum

import torch
from torch import nn

from specdec.runner.fused.linear import FastLinear
from specdec.runner.fused.norm import FastNorm


class Invariance(Enum):
    """Whether, and by what, the logits of a row are the same, bit for bit, in any pass."""

    NONE = "none"
    """They differ in their last bits: the fastest operation for the size of a pass is taken."""
    COMPILED = "compiled"
    """Every pass takes the compiled loops of the host, in pieces where it is long."""
    KERNELS = "kernels"
    """Every pass takes the batch-invariant kernels of specdec-kernels."""


class InvariantLinear(FastLinear):
    """`x @ W.T + b` by a kernel that multiplies a row alike in any company.

    Args:
        linears: see `FastLinear`.
    """

    def __init__(self, linears: list[nn.Linear]) -> None:
        super().__init__(linears, is_compact=False)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[T, out]`."""
        from specdec_kernels.matmul_invariant import matmul_invariant  # optional

        return matmul_invariant(x, self.weight, bias=self.bias)


class InvariantNorm(FastNorm):
    """Root-mean-square norm by a kernel that takes a row at a time."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the norm of `x [..., H]` over its last dimension."""
        from specdec_kernels.rms_norm import rms_norm  # optional

        flat = x.reshape(-1, x.shape[-1])
        return rms_norm(flat, self.weight, epsilon=self.epsilon).normed.view(x.shape)


def silu_product(gate_up: torch.Tensor) -> torch.Tensor:
    """Return `silu(gate) * up` `[T, I]` for `gate_up [T, 2 I]`, every number alike wherever it lies."""
    from specdec_kernels.silu_mul import silu_mul  # optional

    size = gate_up.shape[-1] // 2
    return silu_mul(gate_up[:, :size], gate_up[:, size:])
