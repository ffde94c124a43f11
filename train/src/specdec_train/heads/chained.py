"""The loss of MLP speculators: each head is told the token before the one it guesses."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from specdec.runner import output_head
from specdec_plugin_mlp import MLPSpeculator
from specdec_train.heads.recurrent import Guess
from specdec_train.heads.states import StateReader
from specdec_train.laws import Measure, divergence, laws_of


class ChainedObjective:
    """Trains all heads of a speculator at once, along the true tokens.

    Args:
        heads: trained.
        reader: the target.
    """

    def __init__(self, heads: MLPSpeculator, reader: StateReader) -> None:
        self._heads, self.reader = heads, reader
        self.measure: Measure = divergence
        """What the loss is made of."""

    def loss(self, tokens: Tensor) -> Tensor:
        """Mean distance from the target's law over all heads, for `tokens [B, W]`, in nats."""
        return self._mean(self.guesses(tokens))

    def loss_of(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        """The same where the target's states `[B, T, H]` of `tokens [B, T + 1]` are known."""
        logits = output_head(self.reader.target)(hidden)
        return self._mean(self._guesses_from(hidden, logits, tokens))

    def guesses(self, tokens: Tensor) -> Iterator[Guess]:
        """Yield the guesses of one head after the other: head i, at place t, of token t + 2 + i."""
        states = self.reader.read(tokens[:, :-1])
        return self._guesses_from(states.hidden, states.logits, tokens)

    def _mean(self, guesses: Iterator[Guess]) -> Tensor:
        return torch.stack([self.measure(guess.logits, guess.laws, guess.start) for guess in guesses]).mean()

    def _guesses_from(self, states: Tensor, target_logits: Tensor, tokens: Tensor) -> Iterator[Guess]:
        count = self._heads.num_heads
        rows = tokens.shape[1] - 1 - count
        known = tokens[:, 1:].unfold(1, count, 1)[:, :rows]
        hidden = states[:, :rows]
        logits = self._heads(hidden, known)
        laws = laws_of(target_logits)
        for index in range(count):
            wanted = target_logits[:, 1 + index : 1 + index + rows]
            yield Guess(logits[..., index, :], wanted, hidden, hidden, laws, 1 + index)
