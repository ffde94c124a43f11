"""Keeps rows that are not numbers from the sampler, so that they end their own request and no other."""

from __future__ import annotations

from dataclasses import replace

import torch

from specdec.interfaces.scorer import Scores

NOT_NUMBERS = "the logits are not numbers"


def sound_rows(scores: Scores) -> tuple[Scores, torch.Tensor | None]:
    """Return scores whose p-logits are numbers, and which rows `[R]` were so from the start; None if all were.

    The other rows are made indifferent: any sampler can draw from them, and nothing that it draws is kept. On a device the
    answer is left there, not to wait for it, and so is never None.
    """
    is_sound = scores.logits.amax(-1) > -torch.inf
    if is_sound.device.type == "cpu" and bool(is_sound.all()):
        return scores, None
    return replace(scores, logits=scores.logits.masked_fill(~is_sound[:, None], 0.0)), is_sound
