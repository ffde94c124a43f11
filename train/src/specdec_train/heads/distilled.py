"""The loss of draft models: they learn the target's law, not the text."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor
from transformers import PreTrainedModel

from specdec_train.heads.recurrent import Guess
from specdec_train.heads.states import StateReader
from specdec_train.laws import Measure, divergence, laws_of


class DistilledObjective:
    """Trains a draft model to guess like the target.

    Args:
        draft: trained.
        reader: the target.
    """

    def __init__(self, draft: PreTrainedModel, reader: StateReader) -> None:
        self._draft, self._reader = draft, reader
        self.measure: Measure = divergence
        """What the loss is made of."""

    def loss(self, tokens: Tensor) -> Tensor:
        """Mean distance from the target's law for `tokens [B, W]`, in nats."""
        guess = next(self.guesses(tokens))
        return self.measure(guess.logits, guess.laws, 0)

    def guesses(self, tokens: Tensor) -> Iterator[Guess]:
        """Yield the one guess there is."""
        states = self._reader.read(tokens[:, :-1])
        logits = self._draft(input_ids=tokens[:, :-1], use_cache=False).logits
        yield Guess(logits, states.logits, states.hidden, states.hidden, laws_of(states.logits))
