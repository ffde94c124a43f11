"""The loss of draft models: distillation from the target's distribution."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor
from transformers import PreTrainedModel

from specdec_train.heads.guess import Guess
from specdec_train.heads.loss_positions import LossPositions
from specdec_train.heads.states import StateReader, logits_of
from specdec_train.target_probs import Measure, divergence, target_probs_of


class DistilledObjective:
    """Trains a draft model to match the target's distribution.

    Args:
        draft: the draft model to train.
        reader: reads the target's states.
    """

    def __init__(self, draft: PreTrainedModel, reader: StateReader) -> None:
        self._draft, self.reader = draft, reader
        self.measure: Measure = divergence
        """The loss function."""

    def loss(self, tokens: Tensor, is_answer: Tensor | None = None) -> Tensor:
        """Mean loss against the target's distribution for `tokens [B, W]`, in nats.

        Args:
            tokens: the text.
            is_answer: `[B, W]` mask of the tokens to train on; None for all.
        """
        guess = next(self.guesses(tokens, is_answer))
        return self.measure(guess.logits, guess.target_probs, guess.rows)

    def guesses(
        self, tokens: Tensor, is_answer: Tensor | None = None, *, is_whole: bool = False
    ) -> Iterator[Guess]:
        """Yield the guess of the next token; a draft model has only this one."""
        places = LossPositions(tokens, is_answer)
        states = self.reader.read(tokens[:, :-1], places.chosen)
        _, logits = logits_of(self._draft, tokens[:, :-1], places.chosen)
        at, of, place = places.rows(tokens.shape[1] - 1, 0, 0)
        hidden = states.hidden.flatten(0, 1)[place]
        target_logits = states.logits.flatten(0, -2)
        yield Guess(
            logits.flatten(0, -2), target_probs_of(target_logits), of, at, target_logits, hidden, hidden
        )
