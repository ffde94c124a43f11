"""Logit bias."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from specdec.logits.rows import RowBlock


class BiasRule:
    """Adds a number to the logits of some ids.

    Args:
        bias: number to add for each id.
        device: where logits live.
    """

    def __init__(self, bias: Mapping[int, float], device: torch.device) -> None:
        self._ids = torch.tensor(list(bias), device=device)
        self._values = torch.tensor(list(bias.values()), dtype=torch.float32, device=device)

    def apply(self, logits: torch.Tensor, block: RowBlock) -> torch.Tensor:
        """Return the biased rows `[num_rows, V]`."""
        return logits.index_add(-1, self._ids, self._values.expand(len(logits), -1))
