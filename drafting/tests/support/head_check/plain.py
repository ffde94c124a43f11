"""What layers of all heads compute, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight


def rotated(x: Tensor, theta: float) -> Tensor:
    """Rotate `x [n, heads, D]`, row i by position i, the two halves of D being the two components."""
    count, _, dim = x.shape
    frequencies = theta ** (-torch.arange(0, dim, 2, dtype=x.dtype) / dim)
    angles = torch.arange(count, dtype=x.dtype)[:, None] * frequencies
    cos, sin = torch.cos(angles)[:, None], torch.sin(angles)[:, None]
    a, b = x[..., : dim // 2], x[..., dim // 2 :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
