"""What a member has not been told yet: a member that does not draft in a step need not be called in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from specdec.interfaces import ProposeBatch
from specdec_plugin_composite.states import States

_MOST_WAITING, _MOST_OF_ALL = 1024, 2048
"""Tokens of one request, and of all, whose states wait; with more the member is called."""


class Inbox:
    """How much of each request's text one member was told.

    Args:
        states: where hidden states wait; None for a member that reads none.
        aux_places: indices of its auxiliary layers among those of the batch.
    """

    def __init__(self, states: States | None, aux_places: Sequence[int]) -> None:
        self._states, self._aux_places = states, tuple(aux_places)
        self._num_delivered: dict[str, int] = {}
        """Number of tokens that the member was told."""
        self._ends: dict[str, int] = {}
        """Number of tokens that it could be told, if it reads states."""
        self.lost: dict[str, str] = {}
        """Why the states of requests are gone: they are told nothing until they are delivered from the start."""

    def add(self, batch: ProposeBatch) -> None:
        """Take in the new tokens of a step."""
        for request_id, start, count in zip(batch.request_ids, batch.starts, batch.counts, strict=True):
            if not count:
                continue
            if start == 0:
                self.lost.pop(request_id, None)
            if start < self._num_delivered.get(request_id, 0):
                self._num_delivered[request_id] = start
            if self._states is not None and request_id not in self.lost:
                self._ends[request_id] = start + count

    @property
    def waiting(self) -> dict[str, int]:
        """For each request with states that the member was not told, the position of the first one."""
        delivered = ((name, self._num_delivered.get(name, 0), end) for name, end in self._ends.items())
        return {name: start for name, start, end in delivered if start < end}

    def num_waiting(self, batch: ProposeBatch) -> int:
        """Return how many tokens the member is told when it is next called, of all requests of a batch."""
        ends = map(int.__add__, batch.starts, batch.counts)
        delivered = (
            end - self._num_delivered.get(name, 0) for name, end in zip(batch.request_ids, ends, strict=True)
        )
        return sum(max(0, count) for count in delivered)

    @property
    def is_full(self) -> bool:
        """Whether the member must be called, since too many states wait."""
        counts = [end - self._num_delivered.get(name, 0) for name, end in self._ends.items()]
        return max(counts, default=0) > _MOST_WAITING or sum(counts) > _MOST_OF_ALL

    def can_draft(self, request_id: str) -> bool:
        """Return whether the member can be told all of a request."""
        return request_id not in self.lost

    def take(self, batch: ProposeBatch) -> ProposeBatch:
        """Return the batch with all that the member was not told, and count it as told."""
        ends = [start + count for start, count in zip(batch.starts, batch.counts, strict=True)]
        starts = [
            end if name in self.lost else min(self._num_delivered.get(name, 0), end)
            for name, end in zip(batch.request_ids, ends, strict=True)
        ]
        self._num_delivered.update(zip(batch.request_ids, ends, strict=True))
        is_as_delivered = starts == list(batch.starts)
        if self._states is None:
            batch = replace(batch, hidden_states=None, aux_hidden_states=(), has_hidden=None)
        else:
            assert batch.hidden_states is not None
            assert batch.has_hidden is not None
            states = (batch.hidden_states, *batch.aux_hidden_states, batch.has_hidden)
            if not is_as_delivered:
                spans = zip(batch.request_ids, starts, ends, strict=True)
                states = self._states.of(spans, tuple(kind[:0] for kind in states))
            aux = tuple(states[1 + place] for place in self._aux_places)
            batch = replace(batch, hidden_states=states[0], aux_hidden_states=aux, has_hidden=states[-1])
        if is_as_delivered:
            return batch
        tokens = [batch.token_ids(row)[a:b] for row, (a, b) in enumerate(zip(starts, ends, strict=True))]
        counts = [end - start for start, end in zip(starts, ends, strict=True)]
        return replace(batch, starts=starts, counts=counts, new_token_ids=np.concatenate(tokens))

    def resume(self, request_id: str, num_held: int) -> None:
        """Record that the member holds a request's first tokens."""
        self.forget([request_id])
        self._num_delivered[request_id] = num_held

    def miss(self, request_id: str, reason: str) -> None:
        """Record that the states of a request's first tokens will not come."""
        self.forget([request_id])
        self.lost[request_id] = reason

    def lose(self, request_ids: Sequence[str], reason: str) -> list[str]:
        """Record that the member dropped its state; returns the requests that it cannot be told again."""
        gone = [name for name in request_ids if self._num_delivered.get(name, 0) > 0 or name in self._ends]
        if self._states is None:
            gone = []
        self.forget(request_ids)
        self.lost.update(dict.fromkeys(gone, reason))
        return gone

    def forget(self, request_ids: Sequence[str]) -> None:
        """Drop all about these requests."""
        for request_id in request_ids:
            self._num_delivered.pop(request_id, None)
            self._ends.pop(request_id, None)
            self.lost.pop(request_id, None)
        if not self._num_delivered:  # an emptied dict keeps its memory
            self._num_delivered, self._ends = {}, {}
