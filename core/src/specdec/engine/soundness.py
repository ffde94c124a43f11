"""Hides logits rows that are not numbers from the sampler: they end only their own request."""

from __future__ import annotations

from dataclasses import replace

import torch

from specdec.compiled.rows import are_sound
from specdec.interfaces.scorer import Scores

NOT_NUMBERS = "the logits are not numbers"


def sound_rows(scores: Scores) -> tuple[Scores, torch.Tensor | None]:
    """Return scores whose p-logits are numbers, and `[R]`: which rows were so before; None if all were.

    The other rows become uniform: any sampler can draw from them, and the drawn tokens are discarded. On a
    device the mask stays there to avoid a synchronisation, so it is never None.
    """
    logits = scores.logits
    if logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64):
        is_sound = torch.empty(logits.shape[0], dtype=torch.bool)
        if are_sound(logits.numpy(), is_sound.numpy()):
            return scores, None
    else:
        is_sound = logits.amax(-1) > -torch.inf
    return replace(scores, logits=scores.logits.masked_fill(~is_sound[:, None], 0.0)), is_sound
