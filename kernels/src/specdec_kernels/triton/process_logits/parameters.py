"""Temperature and truncation of rows of logits, as tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Cuts(NamedTuple):
    """Temperature and truncation; rows with temperature 0 are left unchanged."""

    temperatures: torch.Tensor
    """`[R]` float32, not negative."""
    min_p: torch.Tensor | None = None
    """`[R]` float32: ids less probable than this share of the best one's p are cut; 0 disables it."""
    top_k: torch.Tensor | None = None
    """`[R]` int32 or int64: number of ids to keep, the lowest of equal ones; 0, -1, V and more keep all."""
    top_p: torch.Tensor | None = None
    """`[R]` float32: keeps the fewest ids whose probabilities reach it, the lowest of equal ones; 1 keeps all."""
