"""The loss of heads that go on from their own states: EAGLE's and multi-token prediction's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache

from specdec.runner import DraftHead
from specdec_train.heads.places import Places
from specdec_train.heads.states import StateReader
from specdec_train.laws import Laws, Measure, divergence, laws_of

Forward = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Guess:
    """What a head says some steps after positions of the text, and what the target says there."""

    logits: Tensor
    """`[N, V']`."""
    laws: Laws
    """The target's distributions at M positions, among the ids that can be guessed."""
    rows: Tensor
    """`[N]` which of them each guess is of."""
    places: Tensor
    """`[N]` the head's rows, counted through the windows: of one draft it is the same in every step."""
    target_logits: Tensor
    """`[M, V]` of the target, where they were asked for; else `[M, V']`."""
    carry: Tensor
    """`[N, F]` the state the head goes on with."""
    feature: Tensor
    """`[N, F]` the state of the target it stands for."""

    @property
    def wanted(self) -> Tensor:
        """`[N, V]` logits of the target for each guess."""
        return self.target_logits[self.rows]


class RecurrentObjective:
    """Trains a head as it will be used: after its first guess it reads its own states (training-time test, EAGLE-3).

    The row of position t pairs token t + 1 with the state at t. Step j feeds the true token t + 1 + j with the carry of step
    j - 1, sees the true rows up to t and its own rows since, and guesses token t + 2 + j.

    Args:
        head: trained; its layers' attention is `transformers`' own.
        reader: the target.
        num_steps: J, steps simulated.
        decay: weight of each step, times that of the one before.
        regression: weight of the smooth L1 distance between carry and the target's state, as EAGLE-1 has it.
    """

    def __init__(
        self, head: DraftHead, reader: StateReader, *, num_steps: int, decay: float, regression: float
    ) -> None:
        self._head, self.reader = head, reader
        self._num_steps, self._decay, self._regression = num_steps, decay, regression
        self.num_trained = num_steps
        """Steps that the loss takes in, from the first on."""
        self.measure: Measure = divergence
        """What the loss is made of."""

    def loss(self, tokens: Tensor, is_answer: Tensor | None = None) -> Tensor:
        """Mean loss over `tokens [B, W]`, in nats: distance of the head's distribution from the target's.

        Args:
            tokens: the text.
            is_answer: `[B, W]` the tokens that count; None for all.
        """
        total = torch.zeros((), device=tokens.device)
        weight, weights = 1.0, 0.0
        for guess in islice(self.guesses(tokens, is_answer), self.num_trained):
            if len(guess.rows):
                loss = self.measure(guess.logits, guess.laws, guess.rows)
                if self._regression:
                    distance = F.smooth_l1_loss(guess.carry.float(), guess.feature.float())
                    loss = loss + self._regression * distance
                total = total + weight * loss
            weights += weight
            weight *= self._decay
        return total / weights

    def guesses(
        self, tokens: Tensor, is_answer: Tensor | None = None, *, is_whole: bool = False
    ) -> Iterator[Guess]:
        """Yield the guesses of one step after the other.

        Args:
            tokens: `[B, W]`.
            is_answer: `[B, W]` the tokens that count; None for all.
            is_whole: whether the target's logits are wanted for all ids, not only for those the head can name.
        """
        places, target_ids = Places(tokens, is_answer), self._head.target_ids
        states = self.reader.read(tokens[:, :-1], places.chosen, None if is_whole else target_ids)
        batch, length = tokens.shape[0], tokens.shape[1] - 1
        rows = length - self._num_steps
        true_features = self._combine(states.hidden, states.aux)
        target_logits = states.logits.flatten(0, -2)
        is_cut = is_whole and target_ids is not None
        laws = laws_of(target_logits[:, target_ids] if is_cut else target_logits)
        past, carry = DynamicCache(), true_features[:, :rows]
        for step in range(self._num_steps):
            positions = (torch.arange(rows, device=tokens.device) + step).expand(batch, -1)
            attention: dict[str, Any] = {"past_key_values": past}
            if step:
                attention["attention_mask"] = _mask(rows, step, carry.dtype, str(tokens.device))
            ids = tokens[:, 1 + step : 1 + step + rows]
            stage = step % self._head.num_stages
            out, carry = self._head(ids, positions, carry, stage, **attention)
            at, of, place = places.rows(rows, 1, step)
            yield Guess(
                self._head.project(out.flatten(0, 1)[at], stage),
                laws,
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


@cache
def _mask(rows: int, step: int, dtype: torch.dtype, device: str) -> Tensor:
    """Additive mask `[1, 1, R, (step + 1) R]`: the true rows up to a position, and of each later step the row there."""
    causal = torch.ones(rows, rows, dtype=torch.bool, device=device).tril()
    own = torch.eye(rows, dtype=torch.bool, device=device)
    visible = torch.cat([causal, *[own] * step], 1)
    return torch.zeros(visible.shape, dtype=dtype, device=device).masked_fill(
        ~visible, torch.finfo(dtype).min
    )[None, None]
