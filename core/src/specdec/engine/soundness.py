"""Hides logits rows that are not numbers from the sampler: they end only their own request."""

from __future__ import annotations

from dataclasses import replace

import torch

from specdec.interfaces.scorer import Scores
from specdec.noise import row_operations

NOT_NUMBERS = "the logits are not numbers"


def sound_rows(scores: Scores) -> tuple[Scores, torch.Tensor | None]:
    """Return scores whose p-logits are numbers, and `[R]`: which rows were so before; None if all were.

    The other rows become uniform: any sampler can draw from them, and the drawn tokens are discarded. On a
    device the mask stays there to avoid a synchronisation, so it is never None.
    """
    is_sound = row_operations(scores.logits.device).sound_rows(scores.logits)
    if is_sound is None:
        return scores, None
    return replace(scores, logits=scores.logits.masked_fill(~is_sound[:, None], 0.0)), is_sound
