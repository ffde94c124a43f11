"""q of a batch over the target's ids, whatever the draft vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import pad


class ProbArrays(NamedTuple):
    """q as arrays."""

    probs: npt.NDArray[np.floating]
    """`[B, N + 1, V']`."""
    is_drawn: npt.NDArray[np.bool_]
    """`[B]`: rows that carry q."""
    target_ids: npt.NDArray[np.int64]
    """`[V']`: target id of each draft id; `[0]` (empty) if the ids are the same."""
    draft_ids: npt.NDArray[np.int64]
    """`[V + 1]`: draft id of each target id, -1 for none; or `[0]` (empty)."""


_HALVES = (torch.float16, torch.bfloat16)


def normalised(node_probs: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return q in the dtype and on the device of `like`; half precision is normalised to sum to 1."""
    probs = node_probs.detach().to(like)
    return probs / probs.sum(-1, keepdim=True) if node_probs.dtype in _HALVES else probs


@dataclass(frozen=True)
class DraftVocabulary:
    """The ids of a draft that has a vocabulary of its own."""

    target_ids: torch.Tensor
    """`[V']` int64: target id of each draft id."""
    size: int
    """V, of the target."""

    @cached_property
    def columns(self) -> torch.Tensor:
        """`[V']`: target id of each draft id; V for ids outside the vocabulary."""
        return self.target_ids.clamp(-1, self.size) % (self.size + 1)

    @cached_property
    def draft_ids(self) -> torch.Tensor:
        """`[V + 1]`: draft id of each target id; -1 for none."""
        ids = self.target_ids.new_full((self.size + 1,), -1)
        ids[self.columns] = torch.arange(len(self.columns), device=ids.device)
        ids[self.size] = -1
        return ids


class DraftProbs:
    """The distributions that drafted tokens were drawn from.

    A draft id that the target does not have keeps its mass outside the vocabulary, where p is 0.

    Args:
        node_probs: `[B, N + 1, V']`, see `Draft.node_probs`. Half precision does not sum to 1 and is normalised.
        vocab_size: V, of the target.
        vocabulary: the draft's, or None where its ids are the target's.
        is_drawn: `[B]` bool: rows that carry q; None means all. The tokens of other rows are point masses.
        is_taken_out: whether a drawn sibling is removed from q for later ones.
        like: a tensor with the dtype and on the device to work with.
    """

    def __init__(
        self,
        node_probs: torch.Tensor,
        *,
        vocab_size: int,
        vocabulary: DraftVocabulary | None,
        is_drawn: torch.Tensor | None,
        is_taken_out: bool,
        like: torch.Tensor,
    ) -> None:
        self._probs = normalised(node_probs, like)
        self._vocab_size = vocab_size
        self._vocabulary = vocabulary
        self.is_drawn = None if is_drawn is None else is_drawn.to(like.device)
        self.is_taken_out = is_taken_out

    @cached_property
    def _batch(self) -> torch.Tensor:
        return torch.arange(len(self._probs), device=self._probs.device)

    def of_nodes(self, places: torch.Tensor, token_ids: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Return `[B, N]`: q of drafted ids, none removed; 1 for point masses, 0 for ids unknown to q.

        Args:
            places: `[B, N]` row of q of each node.
            token_ids: `[B, N]` as they were drawn.
            columns: `[B, N]` the same, V for ids outside the vocabulary.
        """
        ids = token_ids if self._vocabulary is None else self._vocabulary.draft_ids[columns]
        known = ids.clamp(0, self._probs.shape[2] - 1)
        found = self._probs[self._batch[:, None], places, known].masked_fill(ids != known, 0.0)
        return found if self.is_drawn is None else torch.where(self.is_drawn[:, None], found, 1.0)

    def as_arrays(self, size: int) -> ProbArrays:
        """Return q as contiguous arrays; only for tensors on the CPU.

        Args:
            size: B.
        """
        nothing = np.empty(0, np.int64)
        vocabulary = self._vocabulary
        arrays = (
            self._probs.numpy(),
            np.ones(size, np.bool_) if self.is_drawn is None else self.is_drawn.numpy(),
            nothing if vocabulary is None else vocabulary.target_ids.numpy(),
            nothing if vocabulary is None else vocabulary.draft_ids.numpy(),
        )
        return ProbArrays(*map(np.ascontiguousarray, arrays))

    def row(self, places: torch.Tensor) -> torch.Tensor:
        """Return `[B, V]`: row `places[i]` of q; mass outside the vocabulary is dropped."""
        return self._inside(self._probs[self._batch, places])

    def rows(self, first: int, last: int) -> torch.Tensor:
        """Return `[B, last - first, V]`: rows `first` to `last - 1` of q; mass outside V is dropped."""
        return self._inside(self._probs[:, first:last])

    def wide_rows(self, count: int) -> torch.Tensor:
        """Return a copy `[B, count, V + 1]` of the first rows of q; the last column is mass outside V."""
        probs, size = self._probs[:, :count], self._vocab_size
        if self._vocabulary is not None:
            return self._spread(probs)
        if probs.shape[-1] <= size:
            return pad(probs, (0, size + 1 - probs.shape[-1]))
        return torch.cat((probs[..., :size], probs[..., size:].sum(-1, keepdim=True)), -1)

    def outside(self, places: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        """Return `[B]`: q of ids outside the vocabulary; undefined for ids inside.

        Args:
            places: `[B]` row of q.
            token_ids: `[B]` as they were drawn.
        """
        probs = self._probs[self._batch, places]
        if self._vocabulary is not None:
            return (probs * (self._vocabulary.target_ids == token_ids[:, None])).sum(-1)
        return probs.gather(1, token_ids.clamp(0, probs.shape[1] - 1)[:, None])[:, 0]

    def _inside(self, probs: torch.Tensor) -> torch.Tensor:
        size = self._vocab_size
        if self._vocabulary is not None:
            return self._spread(probs)[..., :size]
        if probs.shape[-1] < size:
            return pad(probs, (0, size - probs.shape[-1]))
        return probs[..., :size]

    def _spread(self, probs: torch.Tensor) -> torch.Tensor:
        assert self._vocabulary is not None
        wide = probs.new_zeros((*probs.shape[:-1], self._vocab_size + 1))
        return wide.index_add_(-1, self._vocabulary.columns, probs)
