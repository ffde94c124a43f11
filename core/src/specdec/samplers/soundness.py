"""Hides logits rows that are not numbers from the sampler: they end only their own request."""

from __future__ import annotations

from dataclasses import replace

import torch

from specdec.interfaces.scorer import Scores
from specdec.noise import row_operations

NOT_NUMBERS = "the logits are not numbers"


def sound_rows(scores: Scores) -> Scores:
    """Return scores whose p-logits are numbers, with `Scores.is_sound`.

    The other rows become uniform: any sampler can draw from them, and the drawn tokens are discarded. On a
    device the mask stays there to avoid a synchronisation, so it is never None.
    """
    is_sound = row_operations(scores.logits.device).sound_rows(scores.logits)
    if is_sound is None:
        return scores
    zero = torch.zeros(
        (), dtype=scores.logits.dtype
    )  # of the host: a number would be sent by a launch of its own
    return replace(scores, logits=torch.where(is_sound[:, None], scores.logits, zero), is_sound=is_sound)
