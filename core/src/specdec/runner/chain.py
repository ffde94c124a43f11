"""Chains of tokens that are drafted without the interpreter between their steps: what is asked, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces.draws import NoiseKeys

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
_NONE = np.empty((0, 0), np.float32)


@dataclass(frozen=True, eq=False)
class ChainRules:
    """How a chain chooses its tokens. Recorded loops belong to one instance of it.

    Args:
        num_ids: only logits below it are looked at.
        target_ids: `[num_ids]` the target's id of each, ascending, or None where they are the same.
        is_drawn: whether tokens are drawn from a stream of their own and q is kept; else the noise of `strict` chooses.
        threshold: probability below which a token is the last that its row needs; 0 for never, and then no probabilities.
    """

    num_ids: int
    target_ids: Ints | None = None
    is_drawn: bool = False
    threshold: float = 0.0

    @property
    def wants_chances(self) -> bool:
        """Whether the probability of each token is wanted."""
        return self.threshold > 0


@dataclass(frozen=True)
class ChainWork:
    """Which chains are to be drafted, for B requests."""

    first_slots: Sequence[int]
    """`[B]` cache slot of position 0."""
    num_cached: Sequence[int]
    """`[B]` rows in the cache, before new rows are taken in."""
    num_steps: int
    """The most tokens to choose; the slots of all but the last that is chosen are written."""
    temperatures: Sequence[float]
    """`[B]`; 0 chooses greedily."""
    keys: NoiseKeys
    """What noise is keyed by."""
    rules: ChainRules
    """How tokens are chosen."""


@dataclass(frozen=True)
class NewRows:
    """Tokens to take in before a chain is drafted, one request's after another's."""

    token_ids: Ints
    """`[T]` the draft's ids."""
    counts: Sequence[int]
    """`[B]` how many there are of each request; at least one."""
    features: Floats | None = None
    """`[T, F]` for heads."""


@dataclass(frozen=True)
class Chains:
    """What was drafted."""

    token_ids: Ints
    """`[B, K]` the target's ids. K may be below `num_steps` where every row has a token below the threshold."""
    chances: Floats
    """`[B, K]` the draft's own probability of each, or empty."""
    laws: torch.Tensor
    """`[B, K, num_ids]` the distribution each was drawn from, on the runner's device, or empty."""
    logits: Floats = field(default_factory=lambda: _NONE)
    """`[B, V]` of each request's last new token; empty where nothing was taken in."""
    states: Floats = field(default_factory=lambda: _NONE)
    """`[B, H]` ditto: the carry of a head."""


class Chain(Protocol):
    """A draft loop over one cache."""

    @property
    def max_rows(self) -> int:
        """The most requests that it drafts for together."""

    @property
    def max_new_rows(self) -> int:
        """The most new tokens that it takes in before it drafts; 0: it begins from logits only."""

    def draft(self, logits: torch.Tensor, states: torch.Tensor | None, work: ChainWork) -> Chains:
        """Return the tokens of each row; see `ModelRunner.draft_chain`."""
