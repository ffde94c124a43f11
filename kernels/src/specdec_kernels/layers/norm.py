"""Norms with few operations."""

from __future__ import annotations

import torch

from specdec_kernels.layers.parts import Norm


class FastNorm:
    """A root-mean-square norm, or layer norm without a bias, computed in float32, as in `transformers`."""

    def __init__(self, norm: Norm) -> None:
        self.weight, self.epsilon, self.is_centred = norm

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the norm of `x [..., H]` over its last dimension."""
        if self.is_centred:
            return torch.nn.functional.layer_norm(x, x.shape[-1:], self.weight, None, self.epsilon)
        if x.dtype == torch.float32:
            scale = torch.rsqrt(x.square().mean(-1, keepdim=True).add_(self.epsilon))
            return (x * scale).mul_(self.weight)
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True).add_(self.epsilon))
        if self.weight.dtype == torch.float32:
            return wide.mul_(scale).mul_(self.weight).to(x.dtype)
        return wide.mul_(scale).to(x.dtype) * self.weight
