"""What a head in training guesses, and the mean of the losses of its guesses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_train.target_probs import TargetProbs


@dataclass(frozen=True)
class Guess:
    """A head's predictions some steps after positions of the text, and the target's distributions there."""

    logits: Tensor
    """`[N, V']`."""
    target_probs: TargetProbs
    """The target's distributions at M positions, over the draft vocabulary."""
    rows: Tensor
    """`[N]` index of the target distribution for each guess."""
    places: Tensor
    """`[N]` the head's rows, indices into the flattened windows; the same in every step of one draft."""
    target_logits: Tensor
    """`[M, V]` logits of the target, if requested; else `[M, V']`."""
    carry: Tensor
    """`[N, F]` the state from which the head continues."""
    feature: Tensor
    """`[N, F]` the target state that it approximates."""

    @property
    def wanted(self) -> Tensor:
        """`[N, V]` target logits for each guess."""
        return self.target_logits[self.rows]


def decayed_mean(
    guesses: Iterable[Guess], loss_of: Callable[[Guess], Tensor], decay: float, device: torch.device
) -> Tensor:
    """Return the weighted mean of the losses of successive guesses.

    Args:
        guesses: one for each step; those without rows count as 0.
        loss_of: returns the loss of a guess.
        decay: factor on the weight from one step to the next.
        device: where the mean is.
    """
    total, weight, weights = torch.zeros((), device=device), 1.0, 0.0
    for guess in guesses:
        if len(guess.rows):
            total = total + weight * loss_of(guess)
        weights += weight
        weight *= decay
    return total / weights
