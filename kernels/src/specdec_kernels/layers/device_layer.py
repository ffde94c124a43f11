"""One decoder layer like Llama's by kernels that fuse what surrounds its products."""

from __future__ import annotations

from typing import NamedTuple

import torch

from specdec_kernels.cuda.attention import PagedAttention
from specdec_kernels.layers.layer import FusedLayer
from specdec_kernels.layers.linear import JoinedLinear
from specdec_kernels.layers.norm import FastNorm
from specdec_kernels.layers.parts import Norm
from specdec_kernels.triton.matmul_invariant import matmul_invariant
from specdec_kernels.triton.rms_norm import rms_norm
from specdec_kernels.triton.rope_kv_write import HeadNorms
from specdec_kernels.triton.silu_mul import silu_mul
from specdec_runtime.interfaces import PackedBatch


class Halves(NamedTuple):
    """Rotary factors by position, `[P, R / 2]` each."""

    cos: torch.Tensor
    sin: torch.Tensor


class InvariantLinear(JoinedLinear):
    """`x @ W.T + b` by a batch-invariant kernel.

    Args:
        linears: see `JoinedLinear`.
    """

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[T, out]`."""
        return matmul_invariant(x, self.weight, bias=self.bias)


class KernelNorm(FastNorm):
    """Root-mean-square norm in one launch, which processes each row by itself."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the norm of `x [..., H]` over its last dimension."""
        flat = x.reshape(-1, x.shape[-1])
        return rms_norm(flat, self.weight, epsilon=self.epsilon).normed.view(x.shape)

    def of_sum(self, x: torch.Tensor, added: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the norm of the sum `[T, H]`, and the sum."""
        normed, total = rms_norm(x, self.weight, epsilon=self.epsilon, residual=added)
        return normed, x if total is None else total


class DeviceLayer(FusedLayer[JoinedLinear]):
    """The same layer in about ten launches: norms add the residual, rotation norms the heads and writes the cache, activations
    multiply.

    Its rows are computed by themselves, so it is batch-invariant if its products are.
    """

    def make_norm(self, norm: Norm | None) -> FastNorm | None:
        """Return a norm of the layer that runs as one kernel."""
        return None if norm is None else KernelNorm(norm)

    def added(
        self,
        x: torch.Tensor,
        delta: torch.Tensor | None,
        rotation: Halves,
        batch: PackedBatch,
        attention: PagedAttention,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run the layer on the sum of two tensors, so that its first norm adds them.

        Args:
            x: `[T, H]`.
            delta: `[T, H]` what the layer before adds to it; None adds nothing.
            rotation: rotary factors.
            batch: the pass.
            attention: over the cache.

        Returns:
            three tensors `[T, H]`: the layer's input, and two whose sum is its output.
        """
        num_rows, parts = x.shape[0], self.parts
        assert isinstance(self.input_norm, KernelNorm) and isinstance(self.mlp_norm, KernelNorm)
        normed, x = self.input_norm.of_sum(x, delta)
        heads = self.qkv(normed).view(num_rows, -1, parts.head_dim)
        query, key, value = heads.split((parts.num_heads, parts.num_kv_heads, parts.num_kv_heads), 1)
        norms = None
        if self.query_norm is not None and self.key_norm is not None:
            norms = HeadNorms(self.query_norm.weight, self.key_norm.weight, self.query_norm.epsilon)
        attended = attention.attend_rotating(
            parts.index, batch, query, key, value, *rotation,
            scaling=parts.scaling, window=parts.window, norms=norms,
        )  # fmt: skip
        normed, after = self.mlp_norm.of_sum(x, self.out(attended.reshape(num_rows, -1)))
        gate, up = self.gate_up(normed).split(self.intermediate, -1)
        return x, after, self.down(silu_mul(gate, up))
