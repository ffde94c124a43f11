"""The loss of recurrent heads, which continue from their own states: EAGLE and multi-token prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache

from specdec_runtime.interfaces import DraftHead
from specdec_runtime.models import cache_argument
from specdec_train.heads.guess import Guess, decayed_mean
from specdec_train.heads.loss_positions import LossPositions
from specdec_train.heads.states import StateReader
from specdec_train.target_probs import Measure, divergence, target_probs_of

Forward = Callable[..., tuple[Tensor, Tensor]]


class RecurrentObjective:
    """Trains a head as it is used, on its own states after the first guess (training-time test, EAGLE-3).

    The row of position t pairs token t + 1 with the state at t. Step j feeds the true token t + 1 + j with the carry of step
    j - 1, attends to the true rows up to t and its own rows since, and predicts token t + 2 + j.

    Args:
        head: the head to train; its layers use the attention of `transformers`.
        reader: reads the target's states.
        num_steps: J, number of simulated steps.
        decay: factor on the loss weight from one step to the next.
        regression: weight of the smooth L1 distance between carry and the target's state, as in EAGLE-1.
    """

    def __init__(
        self, head: DraftHead, reader: StateReader, *, num_steps: int, decay: float, regression: float
    ) -> None:
        self._head, self.reader = head, reader
        self._cache_argument = cache_argument(head)
        self._num_steps, self._decay, self._regression = num_steps, decay, regression
        self.num_trained = num_steps
        """Number of steps in the loss, counted from the first."""
        self.measure: Measure = divergence
        """The loss function."""

    def loss(self, tokens: Tensor, is_answer: Tensor | None = None) -> Tensor:
        """Mean loss over `tokens [B, W]`, in nats: distance of the head's distribution from the target's.

        Args:
            tokens: the text.
            is_answer: `[B, W]` the tokens that count; None for all.
        """
        guesses = islice(self.guesses(tokens, is_answer), self.num_trained)
        return decayed_mean(guesses, self._loss_of, self._decay, tokens.device)

    def _loss_of(self, guess: Guess) -> Tensor:
        loss = self.measure(guess.logits, guess.target_probs, guess.rows)
        if self._regression:
            loss = loss + self._regression * F.smooth_l1_loss(guess.carry.float(), guess.feature.float())
        return loss

    def guesses(
        self, tokens: Tensor, is_answer: Tensor | None = None, *, is_whole: bool = False
    ) -> Iterator[Guess]:
        """Yield the guesses of each step in order.

        Args:
            tokens: `[B, W]`.
            is_answer: `[B, W]` mask of the tokens to train on; None for all.
            is_whole: whether to return the target's logits for all ids instead of the draft vocabulary only.
        """
        places, target_ids = LossPositions(tokens, is_answer), self._head.target_ids
        states = self.reader.read(tokens[:, :-1], places.chosen, None if is_whole else target_ids)
        batch, length = tokens.shape[0], tokens.shape[1] - 1
        rows = length - self._num_steps
        true_features = self._combine(states.hidden, states.aux)
        target_logits = states.logits.flatten(0, -2)
        is_cut = is_whole and target_ids is not None
        target_probs = target_probs_of(target_logits[:, target_ids] if is_cut else target_logits)
        past, carry = DynamicCache(), true_features[:, :rows]
        for step in range(self._num_steps):
            positions = (torch.arange(rows, device=tokens.device) + step).expand(batch, -1)
            attention: dict[str, Any] = {self._cache_argument: past}
            if step:
                attention["attention_mask"] = _mask(rows, step, carry.dtype, str(tokens.device))
            ids = tokens[:, 1 + step : 1 + step + rows]
            stage = step % self._head.num_stages
            out, carry = self._head(ids, positions, carry, stage, **attention)
            at, of, place = places.rows(rows, 1, step)
            yield Guess(
                self._head.project(out.flatten(0, 1)[at], stage),
                target_probs,
                of,
                at,
                target_logits,
                carry.flatten(0, 1)[at],
                true_features.flatten(0, 1)[place],
            )

    def _combine(self, hidden: Tensor, aux: tuple[Tensor, ...]) -> Tensor:
        flat = self._head.combine(hidden.flatten(0, 1), tuple(a.flatten(0, 1) for a in aux))
        features: Tensor = flat.float().unflatten(0, hidden.shape[:2])
        return features


@lru_cache(maxsize=8)
def _mask(rows: int, step: int, dtype: torch.dtype, device: str) -> Tensor:
    """Additive mask `[1, 1, R, (step + 1) R]`: true rows up to a position, then its own row of each step."""
    causal = torch.ones(rows, rows, dtype=torch.bool, device=device).tril()
    own = torch.eye(rows, dtype=torch.bool, device=device)
    visible = torch.cat([causal, *[own] * step], 1)
    return torch.zeros(visible.shape, dtype=dtype, device=device).masked_fill(
        ~visible, torch.finfo(dtype).min
    )[None, None]
