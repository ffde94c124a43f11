"""Batch invariance: how a row's result stays bit-identical in any pass, and the device operations for it."""

from __future__ import annotations

import torch

from specdec_kernels.layers.linear import JoinedLinear
from specdec_kernels.layers.norm import FastNorm


class InvariantLinear(JoinedLinear):
    """`x @ W.T + b` by a batch-invariant kernel.

    Args:
        linears: see `JoinedLinear`.
    """

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[T, out]`."""
        from specdec_kernels.triton.matmul_invariant import matmul_invariant  # optional

        return matmul_invariant(x, self.weight, bias=self.bias)


class InvariantNorm(FastNorm):
    """Root-mean-square norm by a kernel that processes each row by itself."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the norm of `x [..., H]` over its last dimension."""
        from specdec_kernels.triton.rms_norm import rms_norm  # optional

        flat = x.reshape(-1, x.shape[-1])
        return rms_norm(flat, self.weight, epsilon=self.epsilon).normed.view(x.shape)


def silu_product(gate_up: torch.Tensor) -> torch.Tensor:
    """Return `silu(gate) * up` `[T, I]` for `gate_up [T, 2 I]`; an element's result does not depend on its place."""
    from specdec_kernels.triton.silu_mul import silu_mul  # optional

    size = gate_up.shape[-1] // 2
    return silu_mul(gate_up[:, :size], gate_up[:, size:])
