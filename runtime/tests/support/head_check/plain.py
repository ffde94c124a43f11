"""What layers of all heads compute, in plain torch."""

from __future__ import annotations

from typing import Any

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


class PlainHead:
    """A head over whole texts.

    Args:
        shape: its sizes and habits.
        tensors: its weights.
        embedding: the target's, `[V, H]`.
        lm_head: the target's, `[V, H]`.
    """

    def __init__(self, shape: Any, tensors: dict[str, Tensor], embedding: Tensor, lm_head: Tensor) -> None:
        self.shape = shape
        self._t = {k: v.double() if v.is_floating_point() else v for k, v in tensors.items()}
        self._embedding = self._t.get("embed_tokens.weight", embedding.double())
        self._lm_head = self._t.get("lm_head.weight", lm_head.double())

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return rms_norm(x, self._t[name], self.shape.epsilon)
