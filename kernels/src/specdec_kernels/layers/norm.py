"""Root-mean-square norm with few operations."""

from __future__ import annotations

import torch
from torch import nn


class FastNorm:
    """`x / rms(x) * weight`, computed in float32, as in `transformers`."""

    def __init__(self, module: nn.Module) -> None:
        weight, epsilon = module.weight, module.variance_epsilon
        assert isinstance(weight, torch.Tensor) and isinstance(epsilon, float)
        self.weight = weight.detach()
        self.epsilon = epsilon

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the norm of `x [..., H]` over its last dimension."""
        if x.dtype == torch.float32:
            scale = torch.rsqrt(x.square().mean(-1, keepdim=True).add_(self.epsilon))
            return (x * scale).mul_(self.weight)
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True).add_(self.epsilon))
        return wide.mul_(scale).to(x.dtype) * self.weight
