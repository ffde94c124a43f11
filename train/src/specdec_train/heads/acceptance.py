"""How often a head's guesses are accepted on held-out text."""

from __future__ import annotations

import torch
from torch import Tensor

from specdec_train.distillation import overlap
from specdec_train.heads.recurrent import Guess


class Acceptance:
    """Adds up what guesses have in common with the target's distribution, step after step.

    Each step's own share takes the text before it as accepted. What an engine accepts is a chain: a guess counts only if
    those before it were accepted.

    Args:
        target_ids: `[V']` the target's id of each of the head's logits; None where they are the same.
    """

    def __init__(self, target_ids: Tensor | None) -> None:
        self._target_ids = target_ids
        self._sums: list[Tensor] = []
        self._counts: list[int] = []
        self._standing: dict[int, Tensor] = {}

    def add(self, step: int, guess: Guess) -> None:
        """Add the guesses of one step of a batch; steps of a batch come in ascending order."""
        shares = torch.stack(overlap(guess.logits, guess.wanted, self._target_ids)).double().cpu()
        places = guess.places.cpu()
        standing = torch.zeros(2, int(places.max()) + 1, dtype=torch.float64)
        before = self._standing.get(step - 1)
        # Positions of a later step are among those of the one before it.
        standing[:, places] = shares if before is None or step == 0 else shares * before[:, places]
        self._standing = {step: standing}
        while len(self._sums) <= step:
            self._sums.append(torch.zeros(2, 2, dtype=torch.float64))
            self._counts.append(0)
        self._sums[step] += torch.stack((shares.sum(1), standing[:, places].sum(1)))
        self._counts[step] += len(places)

    def summary(self) -> list[dict[str, float]]:
        """Return per step `sampled`, the mean of `sum(min(p, q))`, and `greedy`, the share of equal best ids; and as
        `sampled_chain` and `greedy_chain` how often all up to it are accepted."""
        names = ("sampled", "greedy", "sampled_chain", "greedy_chain")
        return [
            {
                name: round(value / count, 4)
                for name, value in zip(names, sums.flatten().tolist(), strict=True)
            }
            for sums, count in zip(self._sums, self._counts, strict=True)
        ]
