"""The loss of MLP speculators: each head is told the token before the one it guesses."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from specdec_plugin_mlp import MLPSpeculator
from specdec_train.heads.recurrent import Guess
from specdec_train.heads.states import StateReader
from specdec_train.laws import divergence, laws_of


class ChainedObjective:
    """Trains all heads of a speculator at once, along the true tokens.

    Args:
        heads: trained.
        reader: the target.
    """

    def __init__(self, heads: MLPSpeculator, reader: StateReader) -> None:
        self._heads, self._reader = heads, reader

    def loss(self, tokens: Tensor) -> Tensor:
        """Mean divergence from the target's law over all heads, for `tokens [B, W]`, in nats."""
        losses = [divergence(guess.logits, guess.laws, guess.start) for guess in self.guesses(tokens)]
        return torch.stack(losses).mean()

    def guesses(self, tokens: Tensor) -> Iterator[Guess]:
        """Yield the guesses of one head after the other: head i, at place t, of token t + 2 + i."""
        states = self._reader.read(tokens[:, :-1])
        count = self._heads.num_heads
        rows = tokens.shape[1] - 1 - count
        known = tokens[:, 1:].unfold(1, count, 1)[:, :rows]
        hidden = states.hidden[:, :rows]
        logits = self._heads(hidden, known)
        laws = laws_of(states.logits)
        for index in range(count):
            wanted = states.logits[:, 1 + index : 1 + index + rows]
            yield Guess(logits[..., index, :], wanted, hidden, hidden, laws, 1 + index)
