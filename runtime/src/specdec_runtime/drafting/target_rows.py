"""The rows of drafts on the target's own cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from specdec.interfaces import LeftOut, ProposeBatch, TokenIds
from specdec_runtime.drafting.own_ids import OwnIds
from specdec_runtime.drafting.passes import Int64s, RowChunk
from specdec_runtime.drafting.request_rows import RequestState


class TargetRows:
    """Where drafts of a form of the target go: from the last committed token on; see `Capability.TARGET_CACHE`.

    The target keeps the rows of committed tokens, so there is nothing to deliver, to keep or to reuse; with the methods of
    `RequestRows`.

    Args:
        max_len: maximum number of tokens that are drafted for.
        own_ids: finds the ids that a request's draft may name beside those of all requests; None for no others.
    """

    num_stages = 1
    left_out: Mapping[str, LeftOut] = MappingProxyType({})
    reads_states = False

    def __init__(self, max_len: int, own_ids: OwnIds | None = None) -> None:
        self._max_len, self._own_ids = max_len, own_ids
        self._first_slots: dict[str, int] = {}
        self.states: dict[str, RequestState] = {}

    def num_rows(self, state: RequestState, stage: int = 0) -> int:
        """Return how many rows of a request's committed tokens are in the cache or about to run."""
        return state.num_ids

    def update(self, batch: ProposeBatch, row: int, num_ahead: int) -> Int64s | None:
        """Return the last committed token `[1]`, which is to run; None if no draft is wanted."""
        num_tokens = batch.num_tokens[row]
        if not batch.max_nodes[row] or num_tokens > self._max_len:
            return None
        request_id = batch.request_ids[row]
        self._first_slots[request_id] = batch.first_slots[row]
        self.states[request_id] = RequestState(num_tokens - 1, num_tokens - 1)
        return batch.token_ids(row)[-1:].astype(np.int64)

    def append(self, batch: ProposeBatch, row: int, ids: Int64s) -> RowChunk:
        """Return the piece of the last committed token."""
        request_id = batch.request_ids[row]
        first_slot, num_cached = self.place(request_id)
        self.states[request_id].hold(num_cached + 1, num_cached + 1)
        return RowChunk(ids, first_slot, num_cached, 0)

    def keep(self, state: RequestState, stage: int, row_chunk: RowChunk, carries: object) -> None:
        """Keep nothing: only heads have carries."""

    def chunk_ahead(self, request_id: str, path: tuple[int, ...], token_id: int) -> RowChunk:
        """Return the piece of the last token of a drafted path."""
        first_slot, num_rows = self.place(request_id)
        return RowChunk(np.array([token_id]), first_slot, num_rows + len(path) - 1, 1)

    def keep_drafted(self, state: RequestState, token_ids: Sequence[int | None]) -> None:
        """Keep nothing: verification overwrites the rows."""

    def place(self, request_id: str) -> tuple[int, int]:
        """Return a request's first slot, and the number of rows of its committed tokens."""
        return self._first_slots[request_id], self.states[request_id].num_ids

    def publish(self, batch: ProposeBatch, row: int) -> None:
        """Publish nothing: the rows are the target's."""

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        """Return n for a prefix `[n]`: none of its tokens is needed."""
        return len(token_ids)

    def drop(self, request_id: str) -> None:
        """Drop the state of a request; unknown requests are ignored."""
        self.states.pop(request_id, None)
        self._first_slots.pop(request_id, None)
        if self._own_ids is not None:
            self._own_ids.drop(request_id)

    def more_ids(self, batch: ProposeBatch, rows: Sequence[int]) -> Sequence[Int64s]:
        """Return `ChainWork.more_ids` for these rows of a batch."""
        if self._own_ids is None:
            return ()
        return [self._own_ids.of(batch.request_ids[row], batch.token_ids(row)) for row in rows]
