"""The sampling parameters of rows of logits, as tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Bias(NamedTuple):
    """Numbers to add to the logits of some ids."""

    ids: torch.Tensor
    """`[R, M]` int32 or int64, padded with -1; ids that occur twice are added twice."""
    values: torch.Tensor
    """`[R, M]` float32."""


class Penalties(NamedTuple):
    """Penalties on tokens that occurred; what was drafted on the way to a row counts as output."""

    output_counts: torch.Tensor
    """`[R, V]` int32: how often each id occurs in the output."""
    is_in_prompt: torch.Tensor
    """`[R, V]` bool: ids that occur in the prompt."""
    repetition: torch.Tensor
    """`[R]` float32 above 0: logits of ids that occurred anywhere are divided by it, negative ones multiplied; 1 for none."""
    presence: torch.Tensor
    """`[R]` float32: subtracted once from ids that occur in the output."""
    frequency: torch.Tensor
    """`[R]` float32: subtracted for every time that they do."""


class Cuts(NamedTuple):
    """Temperature and cuts; a row of temperature 0 is neither heated nor cut."""

    temperatures: torch.Tensor
    """`[R]` float32, not negative."""
    min_p: torch.Tensor | None = None
    """`[R]` float32: ids less probable than this share of the best one's p are cut; 0 for none."""
    top_k: torch.Tensor | None = None
    """`[R]` int32 or int64: how many ids to keep, the lowest of equal ones; 0, -1, V and more for all."""
    top_p: torch.Tensor | None = None
    """`[R]` float32: the fewest ids are kept whose probabilities reach it, the lowest of equal ones; 1 for all."""
