"""Root-mean-square norm in plain torch: the specification."""

from __future__ import annotations

import torch


def rms_norm_reference(
    x: torch.Tensor, weight: torch.Tensor, epsilon: float, residual: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the normalized rows and their input `x + residual`, both `[T, H]`; see `rms_norm`."""
    total = x if residual is None else (x.float() + residual.float()).to(x.dtype)
    wide = total.float()
    scale = torch.rsqrt(wide.square().mean(1, keepdim=True) + epsilon)
    return (wide * scale * weight.float()).to(x.dtype), total
