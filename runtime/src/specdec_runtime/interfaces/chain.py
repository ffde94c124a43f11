"""Inputs and outputs of draft loops that run without returning to Python between steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import NoiseKeys, VerdictOffsets

Ints = npt.NDArray[np.int64]
_NONE = torch.empty(0, 0)


@dataclass(frozen=True, eq=False)
class ChainRules:
    """How a draft loop chooses tokens. A recorded loop belongs to one instance.

    Args:
        num_ids: number of leading logits that are used.
        target_ids: `[num_ids]` the target's id of each logit, ascending, or None if they are the same.
        is_drawn: whether tokens are drawn from a separate noise stream and q is kept; else `strict`'s noise chooses.
        threshold: a row needs no tokens after one with a probability below it; 0 disables this: no
            probabilities are computed then, else that of each token is returned.
        is_paired: whether a probability is that against the next best token alone, the noise of coupled draws included.
        width: above 1 drafts are trees of point masses expanded by joint confidence: so many nodes of each depth are continued,
            with so many children each.
        num_nodes: the most nodes of a tree.
        mask_id: the mask token, if one pass over it guesses all tokens of a draft: behind new tokens, or see `ContextRows`.
        skips_last: whether the row of the last token, before the masks, guesses nothing.
        siblings: candidates of each depth, the first of which is continued; above 1 drafts are trees.
    """

    num_ids: int
    target_ids: Ints | None = None
    is_drawn: bool = False
    threshold: float = 0.0
    is_paired: bool = False
    width: int = 1
    num_nodes: int = 0
    mask_id: int | None = None
    skips_last: bool = False
    siblings: int = 1


@dataclass(frozen=True)
class ChainWork:
    """The chains to draft, for B requests."""

    first_slots: Sequence[int]
    """`[B]` cache slot of position 0."""
    num_cached: Sequence[int]
    """`[B]` rows in the cache, before new rows are run."""
    num_steps: int
    """Maximum number of tokens to choose. The cache slots of all chosen tokens but the last are written."""
    temperatures: Sequence[float]
    """`[B]`; 0 is greedy."""
    keys: NoiseKeys
    """Keys of the noise."""
    rules: ChainRules
    """How tokens are chosen."""
    cuts: Sequence[tuple[int, float, float]] = ()
    """`[B]` top-k (0 for all), top-p and min-p, if a row has any. A loop may leave out more or fewer ids: they are guesses."""
    depths: Sequence[int] = ()
    """`[B]` how deep each draft may be, from 1 to `num_steps`; what is deeper means nothing. Empty if all are as deep."""
    ends: Sequence[int] = ()
    """`[B]` number of tokens at which each text ends, from which a loop can tell how deep the next draft may be; or empty."""
    verdict: VerdictOffsets | None = None
    """See `ProposeBatch.verdict`: a loop that has the numbers of these requests takes their tokens and states there."""
    is_unread: bool = False
    """Whether the host has not read it: there are no new rows then, and positions and rows in the cache are those before it."""
    more_ids: Sequence[Ints] = ()
    """`[B]` further ids of the target that a row may name, where the draft's output projection is its embedding; or empty."""


@dataclass(frozen=True)
class NewRows:
    """Tokens to run before a chain is drafted, concatenated request by request; none with `ChainWork.is_unread`."""

    token_ids: Ints
    """`[T]` the draft's ids."""
    counts: Sequence[int]
    """`[B]` number of new tokens of each request; at least one."""
    states: tuple[torch.Tensor, ...] = ()
    """For heads, the target's states `[T, H]` that predicted the tokens, as `DraftHead.combine` takes them."""


@dataclass(frozen=True)
class Chains:
    """The drafted chains."""

    token_ids: torch.Tensor
    """`[B, K]` int64: the target's ids, on the runner's device, where the next call may overwrite them, or on the host; rows of
    padding may follow. K may be below `num_steps` if every row has a token below the threshold, and above with `depths`."""
    confidences: torch.Tensor
    """`[B, K]` the draft's own probability of each token, or empty; where `token_ids` are."""
    draft_probs: torch.Tensor
    """`[B, K, num_ids]` the distribution each token was drawn from, on the runner's device, where the next call may overwrite
    it, or empty; with `depths` there may be a row more, as in `Draft.node_probs`. Rows at temperature 0 are not read."""
    logits: torch.Tensor = _NONE
    """`[B, V]` of each request's last new token; empty if there were no new tokens, or if they are not kept."""
    states: torch.Tensor = _NONE
    """`[B, H]` likewise: the carry of a head."""
    parents: torch.Tensor | None = None
    """`[B, K]` int64, of trees (see `Draft.parents`); None for chains. Nodes are then the best ones, best first, of which there
    are all that the depths allow."""


class ContextRows(Protocol):
    """Gives what the cache holds of texts for a module whose passes have none of their rows, only last tokens and masks."""

    is_causal: bool
    """Whether a row of such a pass sees no later one."""

    def rows(
        self, states: tuple[torch.Tensor, ...], positions: torch.Tensor
    ) -> Sequence[tuple[torch.Tensor, torch.Tensor]]:
        """Return keys and values `[T, Hkv, D]` of every layer of the target's states `[T, H]` at positions `[T]`."""

    def finish(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits of such a pass from those that the module gives."""


class Chain(Protocol):
    """A draft loop over one cache."""

    @property
    def max_rows(self) -> int:
        """Maximum number of requests per call."""

    @property
    def max_tree_nodes(self) -> int:
        """Maximum number of nodes of one depth, of all requests, that a call continues; 0 if it drafts no trees."""

    @property
    def max_new_rows(self) -> int:
        """Maximum number of new tokens that can be run before drafting; 0 if it starts from logits only."""

    def draft(self, logits: torch.Tensor, states: torch.Tensor | None, work: ChainWork) -> Chains:
        """Return the tokens of each row; see `Runner.draft_chain`."""

    def draft_after(self, rows: NewRows, work: ChainWork) -> Chains:
        """Run new rows first, at most `max_new_rows` of them; see `Runner.draft_after`.

        Raises:
            NeedsTokens: if the host has to read the verdict first; see `ChainWork.is_unread`.
        """
