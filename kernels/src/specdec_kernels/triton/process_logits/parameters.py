"""The sampling parameters of rows of logits, as tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Bias(NamedTuple):
    """Values added to the logits of some ids."""

    ids: torch.Tensor
    """`[R, M]` int32 or int64, padded with -1; for an id that occurs twice both values are added."""
    values: torch.Tensor
    """`[R, M]` float32."""


class Penalties(NamedTuple):
    """Penalties on tokens that occurred; drafted tokens on the path to a row count as output."""

    output_counts: torch.Tensor
    """`[R, V]` int32: occurrences of each id in the output."""
    is_in_prompt: torch.Tensor
    """`[R, V]` bool: ids that occur in the prompt."""
    repetition: torch.Tensor
    """`[R]` float32 above 0: logits of ids that occurred anywhere are divided by it, negative ones multiplied; 1 for none."""
    presence: torch.Tensor
    """`[R]` float32: subtracted once from ids that occur in the output."""
    frequency: torch.Tensor
    """`[R]` float32: subtracted for each of those occurrences."""


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
