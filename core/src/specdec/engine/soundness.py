"""Keeps rows that are not numbers from the sampler, so that they end their own request and no other."""

from __future__ import annotations

from dataclasses import replace

import torch

from specdec.compiled.rows import are_sound
from specdec.interfaces.scorer import Scores

NOT_NUMBERS = "the logits are not numbers"


def sound_rows(scores: Scores) -> tuple[Scores, torch.Tensor | None]:
    """Return scores whose p-logits are numbers, and which rows `[R]` were so from the start; None if all were.

    The other rows are made indifferent: any sampler can draw from them, and nothing that it draws is kept. On a device the
    answer is left there, not to wait for it, and so is never None.
    """
    logits = scores.logits
    if logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64):
        is_sound = torch.empty(logits.shape[0], dtype=torch.bool)
        if are_sound(logits.numpy(), is_sound.numpy()):
            return scores, None
    else:
        is_sound = logits.amax(-1) > -torch.inf
    return replace(scores, logits=scores.logits.masked_fill(~is_sound[:, None], 0.0)), is_sound
