"""Acceptance rates of a head on held-out text."""

from __future__ import annotations

import torch
from torch import Tensor

from specdec_train.distillation import overlap
from specdec_train.heads.guess import Guess


class Acceptance:
    """Accumulates the acceptance probabilities of guesses per draft step.

    The rate of a single step assumes that all guesses before it were accepted. The chain rates match what an
    engine accepts: a guess counts only if those before it were accepted.

    Args:
        target_ids: `[V']` target token id of each of the head's logits; None if the vocabularies are equal.
    """

    def __init__(self, target_ids: Tensor | None) -> None:
        self._target_ids = target_ids
        self._sums: list[Tensor] = []
        self._counts: list[int] = []
        self._standing: dict[int, Tensor] = {}

    def add(self, step: int, guess: Guess) -> None:
        """Add the guesses of one step of a batch; the steps of a batch must come in ascending order."""
        shares = torch.stack(overlap(guess.logits, guess.wanted, self._target_ids)).double().cpu()
        places = guess.places.cpu()
        standing = torch.zeros(2, int(places.max()) + 1, dtype=torch.float64)
        before = self._standing.get(step - 1)
        # The positions of a step are a subset of those of the previous step.
        standing[:, places] = shares if before is None or step == 0 else shares * before[:, places]
        self._standing = {step: standing}
        while len(self._sums) <= step:
            self._sums.append(torch.zeros(2, 2, dtype=torch.float64))
            self._counts.append(0)
        self._sums[step] += torch.stack((shares.sum(1), standing[:, places].sum(1)))
        self._counts[step] += len(places)

    def summary(self) -> list[dict[str, float]]:
        """Return the acceptance rates per step.

        `sampled` is the mean of `sum(min(p, q))`, and `greedy` the share of matching argmaxes.
        `sampled_chain` and `greedy_chain` are the rates at which all guesses up to that step are accepted.
        """
        names = ("sampled", "greedy", "sampled_chain", "greedy_chain")
        return [
            {
                name: round(value / count, 4)
                for name, value in zip(names, sums.flatten().tolist(), strict=True)
            }
            for sums, count in zip(self._sums, self._counts, strict=True)
        ]
