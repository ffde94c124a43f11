"""The loss of MLP speculators: each head receives the token before the one it predicts."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from specdec_plugin_mlp import MLPSpeculator
from specdec_runtime.models import output_head
from specdec_train.heads.guess import Guess
from specdec_train.heads.loss_positions import LossPositions
from specdec_train.heads.states import StateReader
from specdec_train.target_probs import Measure, divergence, target_probs_of


class ChainedObjective:
    """Trains all heads of a speculator at once on the true tokens (teacher forcing).

    Args:
        heads: the heads to train.
        reader: reads the target's states.
    """

    def __init__(self, heads: MLPSpeculator, reader: StateReader) -> None:
        self._heads, self.reader = heads, reader
        self.measure: Measure = divergence
        """The loss function."""

    def loss(self, tokens: Tensor, is_answer: Tensor | None = None) -> Tensor:
        """Mean loss against the target's distribution over all heads, for `tokens [B, W]`, in nats.

        Args:
            tokens: the text.
            is_answer: `[B, W]` mask of the tokens to train on; None for all.
        """
        return self._mean(self.guesses(tokens, is_answer))

    def loss_of(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        """The same loss from known target states `[B, T, H]` of `tokens [B, T + 1]`."""
        logits = output_head(self.reader.target)(hidden)
        return self._mean(self._guesses_from(hidden, logits, tokens, LossPositions(tokens, None)))

    def guesses(
        self, tokens: Tensor, is_answer: Tensor | None = None, *, is_whole: bool = False
    ) -> Iterator[Guess]:
        """Yield the guesses of each head in order: head i at position t predicts token t + 2 + i."""
        places = LossPositions(tokens, is_answer)
        states = self.reader.read(tokens[:, :-1], places.chosen)
        return self._guesses_from(states.hidden, states.logits, tokens, places)

    def _mean(self, guesses: Iterator[Guess]) -> Tensor:
        return torch.stack(
            [
                self.measure(guess.logits, guess.target_probs, guess.rows)
                for guess in guesses
                if len(guess.rows)
            ]
        ).mean()

    def _guesses_from(
        self, states: Tensor, target_logits: Tensor, tokens: Tensor, places: LossPositions
    ) -> Iterator[Guess]:
        count = self._heads.num_heads
        rows = tokens.shape[1] - 1 - count
        known = tokens[:, 1:].unfold(1, count, 1)[:, :rows].flatten(0, 1)
        hidden = states[:, :rows].flatten(0, 1).float()
        target_logits = target_logits.flatten(0, -2)
        target_probs = target_probs_of(target_logits)
        first, _, _ = places.rows(rows, 1, 0)
        logits = self._heads(hidden[first], known[first])
        number = torch.zeros(len(hidden), dtype=torch.int64, device=tokens.device)
        number[first] = torch.arange(len(first), device=tokens.device)
        for index in range(count):
            at, of, _ = places.rows(rows, 1, index)
            guessed = logits[number[at], index]
            yield Guess(guessed, target_probs, of, at, target_logits, hidden[at], hidden[at])
