"""What a member has not been told yet: a member that does not draft in a step need not be called in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from specdec.interfaces import ProposeBatch

_MOST_WAITING = 256
"""Tokens of one request whose states wait; with more the member is called."""


@dataclass
class _Piece:
    """States of consecutive new tokens of one request."""

    start: int
    states: tuple[torch.Tensor, ...]
    """`[n, H]` of every kind, the final ones first, then `[n]` whether there is a state."""
    is_lent: bool = True
    """Whether the memory is the batch's, which is valid during the call only."""

    @property
    def end(self) -> int:
        return self.start + len(self.states[0])

    def upto(self, end: int) -> _Piece:
        return replace(self, states=tuple(state[: max(0, end - self.start)] for state in self.states))


class Inbox:
    """Keeps new tokens of all requests for one member, with their hidden states if it reads them.

    Tokens are read from the text again; states are kept.

    Args:
        reads_states: whether the member reads hidden states.
        aux_places: indices of its auxiliary layers among those of the batch.
    """

    def __init__(self, *, reads_states: bool, aux_places: Sequence[int]) -> None:
        self.reads_states = reads_states
        self._aux_places = tuple(aux_places)
        self._told: dict[str, int] = {}
        """Number of tokens that the member was told."""
        self._waiting: dict[str, list[_Piece]] = {}
        self._lost: set[str] = set()
        """Requests whose states are gone: they are told nothing until they are delivered from the start."""

    def add(self, batch: ProposeBatch) -> None:
        """Take in the new tokens of a step."""
        first = 0
        for request_id, start, count in zip(batch.request_ids, batch.starts, batch.counts, strict=True):
            if count and start < self._told.get(request_id, 0):
                self._told[request_id] = start
            if count and self.reads_states:
                self._add_states(batch, request_id, start, first, count)
            first += count

    def _add_states(self, batch: ProposeBatch, request_id: str, start: int, first: int, count: int) -> None:
        if start == 0:
            self._lost.discard(request_id)
        if request_id in self._lost:
            return
        assert batch.hidden_states is not None
        assert batch.has_hidden is not None
        kinds = (
            batch.hidden_states,
            *(batch.aux_hidden_states[i] for i in self._aux_places),
            batch.has_hidden,
        )
        kept = [piece.upto(start) for piece in self._waiting.get(request_id, []) if piece.start < start]
        self._waiting[request_id] = [
            *kept,
            _Piece(start, tuple(kind[first : first + count] for kind in kinds)),
        ]

    @property
    def waiting_ids(self) -> list[str]:
        """The requests of which states wait."""
        return list(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether the member must be called, since too many states wait."""
        return any(
            sum(piece.end - piece.start for piece in p) > _MOST_WAITING for p in self._waiting.values()
        )

    def can_draft(self, request_id: str) -> bool:
        """Return whether the member can be told all of a request."""
        return request_id not in self._lost

    def take(self, batch: ProposeBatch) -> ProposeBatch:
        """Return the batch with all that the member was not told, and count it as told."""
        ends = [start + count for start, count in zip(batch.starts, batch.counts, strict=True)]
        starts = [
            end if request_id in self._lost else min(self._told.get(request_id, 0), end)
            for request_id, end in zip(batch.request_ids, ends, strict=True)
        ]
        self._told.update(zip(batch.request_ids, ends, strict=True))
        states = self._take_states(batch) if self.reads_states else (None, (), None)
        hidden, aux, has_hidden = states
        batch = replace(batch, hidden_states=hidden, aux_hidden_states=aux, has_hidden=has_hidden)
        if starts == list(batch.starts):
            return batch
        tokens = [batch.token_ids(row)[a:b] for row, (a, b) in enumerate(zip(starts, ends, strict=True))]
        counts = [end - start for start, end in zip(starts, ends, strict=True)]
        return replace(batch, starts=starts, counts=counts, new_token_ids=np.concatenate(tokens))

    def _take_states(
        self, batch: ProposeBatch
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...], torch.Tensor]:
        pieces = [p for name in batch.request_ids for p in self._waiting.pop(name, []) if p.end > p.start]
        assert batch.hidden_states is not None
        assert batch.has_hidden is not None
        kinds = (
            batch.hidden_states,
            *(batch.aux_hidden_states[i] for i in self._aux_places),
            batch.has_hidden,
        )
        if not (all(piece.is_lent for piece in pieces) and sum(map(_length, pieces)) == len(kinds[0])):
            columns = (
                zip(*(piece.states for piece in pieces), strict=True) if pieces else ((k[:0],) for k in kinds)
            )
            kinds = tuple(torch.cat(column) for column in columns)
        return kinds[0], kinds[1:-1], kinds[-1]

    def keep(self) -> None:
        """Copy what the member was not told, at the end of a call."""
        for pieces in self._waiting.values():
            for piece in pieces:
                if piece.is_lent:
                    piece.states, piece.is_lent = tuple(state.clone() for state in piece.states), False

    def resume(self, request_id: str, num_held: int) -> None:
        """Record that the member holds a request's first tokens."""
        self._told[request_id] = num_held
        self._waiting.pop(request_id, None)
        self._lost.discard(request_id)

    def lose(self, request_ids: Sequence[str]) -> list[str]:
        """Record that the member dropped its state; returns the requests that it cannot be told again."""
        gone = [name for name in request_ids if self.reads_states and self._told.get(name, 0) > 0]
        self.forget(request_ids)
        self._lost.update(gone)
        return gone

    def forget(self, request_ids: Sequence[str]) -> None:
        """Drop all about these requests."""
        for request_id in request_ids:
            self._told.pop(request_id, None)
            self._waiting.pop(request_id, None)
            self._lost.discard(request_id)


def _length(piece: _Piece) -> int:
    return piece.end - piece.start
