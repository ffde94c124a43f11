"""The rows of all requests in the cache of a draft model or head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from specdec.interfaces import LeftOut, NeedsTokens, ProposeBatch, TokenIds
from specdec_runtime.drafting.passes import CachedRows, Int64s, RowChunk
from specdec_runtime.drafting.request_slots import RequestSlots
from specdec_runtime.drafting.vocabulary import DraftVocabulary
from specdec_runtime.interfaces.head import DraftHead
from specdec_runtime.interfaces.kv_cache import LayerShape
from specdec_runtime.interfaces.runner import Runner

_LAZY_TOKENS = 64
"""A model processes the tokens of requests without a draft only once there are this many."""
_MAX_SHARED_ROWS = 64
"""Maximum number of rows of a pass of which single ones are kept as views."""
_LEAST_GROWTH = 64
"""Rows beside its own, and a quarter more of these, for which a request that returns must find room, so that it stays."""
_NO_ROOM = "the draft's cache has no room beside the requests that run"
_NOT_DELIVERED = "hidden states of its tokens did not reach the draft"
_TOO_LONG = "its text is longer than the draft's max_model_len"


@dataclass(slots=True)
class RequestState:
    """Which committed tokens have rows in the cache, and what drafting continues from."""

    num_tokens: int = 0
    """Number of committed tokens that have been processed."""
    num_ids: int = 0
    """Length of these tokens in the draft's ids; it differs if a target token maps to several draft tokens."""
    drafted: list[int | None] = field(default_factory=list)
    """Target ids of drafted tokens whose rows follow, one row each, and are kept if they are accepted; None for the tokens of a
    chain that the host has not read."""
    carries: dict[int, torch.Tensor] = field(default_factory=dict)
    """For heads by stage, the `[F]` carry of the last row: the feature of the next token in the following stage."""
    is_ahead: bool = False
    """Whether a loop has run tokens behind these, those of a verdict that the host had not read."""
    logits: torch.Tensor | None = None
    """`[1, V']` of the last token, in parallel drafting followed by those of mask tokens; None if they are not known."""

    def hold(self, num_tokens: int, num_ids: int) -> None:
        """Count the rows of other tokens than before; logits are no longer those of the last one."""
        self.num_tokens, self.num_ids, self.logits = num_tokens, num_ids, None

    def keep_accepted(self, committed: TokenIds, last_num_accepted: int) -> None:
        """Keep the rows of drafted tokens that are among all committed ones `[n]`, and drop the others.

        Of tokens that were not read, as many are as were accepted of the last draft.
        """
        if not self.drafted:
            return
        committed = committed[self.num_tokens : self.num_tokens + len(self.drafted)]
        num_accepted = 0
        for drafted, token in zip(self.drafted, committed.tolist(), strict=False):
            is_accepted = num_accepted < last_num_accepted if drafted is None else drafted == token
            if not is_accepted:
                break
            num_accepted += 1
        self.drafted = []
        if num_accepted:
            self.hold(self.num_tokens + num_accepted, self.num_ids + num_accepted)


class RequestRows:
    """Gives requests slots, counts their rows, and reuses the rows of earlier requests with the same prefix.

    Row i of a model is that of the draft's id i. Row i of stage s of a head is that of the token at position i + 1 + s: no
    state predicted the first token, and each further stage needs one more token before it. Rows depend only on the tokens up
    to their own, so blocks of rows are identified by their tokens. In a head's block the last slot (of stage s, the last
    s + 1) has the row of a token of the next block: where texts part at a block boundary, it may be the other text's, which
    can only cost acceptance. For heads with several stages the cache also stores the carry of each row, from which the next
    stage continues after a rollback.

    Args:
        runner: the runner of the model or head. Its cache may be allocated later.
        vocabulary: gives the draft's ids of a text.
        prefix_block_size: ids per prefix cache block (`TargetInfo.prefix_block_size`).
        max_len: maximum number of the draft's ids that are drafted for.
        are_states_alone: whether the rows of a model are those of the target's states: row i is that of the state at position
            i, whatever token follows, and drafts need no logits of a row.
    """

    def __init__(
        self,
        runner: Runner,
        vocabulary: DraftVocabulary,
        prefix_block_size: int,
        max_len: int,
        *,
        are_states_alone: bool = False,
    ) -> None:
        self._runner, self._vocabulary = runner, vocabulary
        self._prefix_block_size, self._max_len = prefix_block_size, max_len
        self._are_states_alone = are_states_alone
        self.states: dict[str, RequestState] = {}
        self._left_out: dict[str, tuple[str, int]] = {}
        """Requests that nothing is drafted for: why, and the rows that each needs."""
        self.num_stages = 1
        self.reads_states = are_states_alone or isinstance(runner.module, DraftHead)
        """Whether its rows are made from the target's states."""
        if isinstance(runner.module, DraftHead):
            self.num_stages = runner.module.num_stages
            shape = LayerShape(1, runner.module.feature_size, 0, runner.dtype)
            for stage in range(self.num_stages - 1):
                runner.cache.allocate(_carry_layer(stage), shape)

    @cached_property
    def pool(self) -> RequestSlots:
        """The slot allocator; created with the first request, because the cache is allocated after loading."""
        size = 0 if self._runner.states is not None else self._prefix_block_size
        return RequestSlots(self._runner.cache, size)

    def num_rows(self, state: RequestState, stage: int = 0) -> int:
        """Return how many rows of a request's committed tokens a stage has."""
        return max(0, state.num_ids - stage - 1) if self.reads_states else state.num_ids

    def update(self, batch: ProposeBatch, row: int, num_ahead: int) -> Int64s | None:
        """Bring a request to where its new tokens start, with room for these and `num_ahead` more rows.

        Returns:
            the draft's ids `[n]` of the new tokens, for `append`; None if nothing is to be run or drafted now, or if there is
            no room. Calls for other rows of the batch may move the request's slots.
        """
        request_id, start, num_wanted = batch.request_ids[row], batch.starts[row], batch.max_nodes[row]
        state = self.states.get(request_id)
        if state is None:
            state = self.states[request_id] = RequestState()
        committed = batch.token_ids(row)[: start + batch.counts[row]]
        if start < state.num_tokens:
            self._forget_from(request_id, state, committed[:start])
        elif state.is_ahead:  # the loop of a draft has run all that it follows
            num_more = max(0, batch.last_draft_at[row] - state.num_tokens)
            state.hold(state.num_tokens + num_more, state.num_ids + num_more)
        state.is_ahead = False
        state.keep_accepted(committed, batch.last_num_accepted[row])
        if self._runner.states is not None and not self._runner.states.holds(request_id, state.num_ids):
            self.drop(request_id)  # its states are gone, so it begins anew
            state = self.states[request_id] = RequestState()
        if self.reads_states and start > state.num_tokens:
            # It rests until it is delivered again from the start: see `left_out`.
            length = batch.num_tokens[row]
            reason, _ = self._left_out.get(request_id, (_NOT_DELIVERED, 0))
            self._leave_out(request_id, reason if length < self._max_len else _TOO_LONG, length + num_ahead)
            return None
        self._left_out.pop(request_id, None)
        waiting = len(committed) - state.num_tokens
        if num_wanted and not waiting and state.logits is None and not self.reads_states:
            # The first logits come from the row of the last token, so it runs again.
            num_ids = self._vocabulary.num_draft_ids(committed[-1:])
            state.hold(state.num_tokens - 1, state.num_ids - num_ids)
            waiting = 1
            if self._runner.states is not None and not self._runner.states.holds(request_id, state.num_ids):
                state.hold(0, 0)
                waiting = len(committed)
        is_ready = num_wanted > 0 and (self._are_states_alone or state.logits is not None)
        if not is_ready and waiting < (1 if num_wanted or self.reads_states else _LAZY_TOKENS):
            return None
        if state.num_ids + waiting > self._max_len:  # each token has at least one of the draft's ids
            self._left_out[request_id] = _TOO_LONG, 0
            return None
        ids = self._vocabulary.to_draft(committed[state.num_tokens :])
        length = max(state.num_ids + len(ids), batch.num_tokens[row])
        if length > self._max_len:
            self._left_out[request_id] = _TOO_LONG, 0
            return None
        if not self._reserve(batch, request_id, length + num_ahead, self.num_rows(state)):
            self._leave_out(request_id, _NO_ROOM, length + num_ahead)
            return None
        return ids

    def append(self, batch: ProposeBatch, row: int, ids: Int64s) -> RowChunk:
        """Count the rows of the new tokens `ids` that `update` returned, all rows of the batch having been updated.

        Returns:
            the piece to run, which may be empty.
        """
        request_id = batch.request_ids[row]
        state = self.states[request_id]
        num_cached = self.num_rows(state)
        if len(ids):
            state.hold(batch.starts[row] + batch.counts[row], state.num_ids + len(ids))
        num_new = self.num_rows(state) - num_cached
        first_slot = self.pool.first_slot(request_id)
        return RowChunk(ids[len(ids) - num_new :], first_slot, num_cached, 0, owner=request_id)

    def keep(
        self, state: RequestState, stage: int, row_chunk: RowChunk, carries: torch.Tensor
    ) -> RowChunk | None:
        """Record the carries `[n, F]` of a piece that a stage of a head has just run.

        Returns:
            the piece of the next stage: each token with the carry at the token before it; None if there are no rows for it.
        """
        carries = carries[
            : self.num_rows(state, stage) - row_chunk.num_cached
        ]  # those of mask tokens are not kept
        if not len(carries):
            return None
        before = state.carries.get(stage)
        last = carries[-1]
        is_long = last.untyped_storage().nbytes() > _MAX_SHARED_ROWS * last.nbytes
        state.carries[stage] = last.clone() if is_long else last  # a view would keep all of the pass alive
        if stage == self.num_stages - 1:
            return None
        first = row_chunk.first_slot + row_chunk.num_cached
        keys = self._runner.cache.keys[_carry_layer(stage)]
        keys[first : first + len(carries), 0] = carries.to(keys.dtype)
        features = carries[:-1] if before is None else torch.cat((before[None], carries[:-1]))
        num_new = len(features)
        if not num_new:
            return None
        num_cached = self.num_rows(state, stage + 1) - num_new
        return RowChunk(row_chunk.ids[-num_new:], row_chunk.first_slot, num_cached, 0, features)

    def chunk_ahead(self, request_id: str, path: tuple[int, ...], token_id: int) -> RowChunk:
        """Return the piece of the last token of a drafted path, which is `token_id` in the draft's input."""
        state, depth = self.states[request_id], len(path)
        turn, stage = divmod(depth, self.num_stages)
        # A stage has one drafted row per earlier turn; the first stage has none in turn 0.
        num_cached = self.num_rows(state, stage) + turn - (1 if stage == 0 else 0)
        position = state.num_ids - (1 if self.reads_states else 0) - stage + depth - 1
        self.keep_drafted(state, path)
        first_slot = self.pool.first_slot(request_id)
        return RowChunk(
            np.array([token_id]), first_slot, num_cached, 1,
            positions=np.array([position]), owner=request_id, num_drafted=1,
        )  # fmt: skip

    def keep_drafted(self, state: RequestState, token_ids: Sequence[int | None]) -> None:
        """Record drafted tokens that a model has run; see `RequestState`. A head's rows of them are not the committed ones."""
        if not self.reads_states:
            state.drafted = list(token_ids)

    def place(self, request_id: str) -> tuple[int, int]:
        """Return a request's first slot, and the number of rows of its committed tokens."""
        return self.pool.first_slot(request_id), self.num_rows(self.states[request_id])

    def places_behind(self, batch: ProposeBatch, num_ahead: int) -> CachedRows:
        """Return where rows are behind a verdict that the host has not read, with room for `num_ahead` rows more.

        Raises:
            NeedsTokens: if a request is not there, or would have to move.
        """
        if not all(name in self.states for name in batch.request_ids):
            raise NeedsTokens
        held = [
            self.num_rows(self.states[name]) + count
            for name, count in zip(batch.request_ids, batch.counts, strict=True)
        ]
        wanted = zip(batch.request_ids, held, batch.num_unread, strict=True)
        if not all(self.pool.extend(name, rows + unread + num_ahead) for name, rows, unread in wanted):
            raise NeedsTokens
        return [self.pool.first_slot(name) for name in batch.request_ids], held

    def go_ahead(self, batch: ProposeBatch) -> None:
        """Count the tokens of a batch as run: the loop of the last draft has, and that of this one runs those behind."""
        for name, count in zip(batch.request_ids, batch.counts, strict=True):
            state = self.states[name]
            state.hold(state.num_tokens + count, state.num_ids + count)
            state.is_ahead = True

    def resume(self, request_id: str, token_ids: TokenIds) -> int:
        """Reuse the cached rows of a prefix `[n]`; returns how many of its tokens are held. See `Proposer.resume`.

        Returns n if the request is too long; nothing is then drafted for it. If there is no room, returns 0: `update`, which
        knows the batch, makes room.
        """
        count = len(token_ids)
        state = self.states.get(request_id)
        if state is not None and state.num_tokens >= count:  # it was preempted
            self._forget_from(request_id, state, token_ids)
            return count
        num_rows = None
        if count < self._max_len:
            num_rows = self.pool.resume(request_id, self._vocabulary.to_draft(token_ids))
        if not num_rows:
            self.drop(request_id)
            return 0 if count < self._max_len else count
        num_held = self._vocabulary.num_within(token_ids, num_rows)
        state = RequestState(num_held, self._vocabulary.num_draft_ids(token_ids[:num_held]))
        self.states[request_id] = state
        self._read_carries(request_id, state)
        return num_held

    def publish(self, batch: ProposeBatch, row: int) -> None:
        """Publish the rows of a request's committed tokens for prefix reuse, where these fill a block that is not published."""
        request_id = batch.request_ids[row]
        state = self.states.get(request_id)
        if state is not None and state.num_ids and self.pool.is_publishable(request_id, state.num_ids):
            token_ids = batch.token_ids(row)[: state.num_tokens]
            self.pool.publish(request_id, self._vocabulary.to_draft(token_ids))

    def drop(self, request_id: str) -> None:
        """Drop the state of a request; unknown requests are ignored."""
        self.states.pop(request_id, None)
        self._left_out.pop(request_id, None)
        self.pool.release(request_id)
        if self._runner.states is not None:
            self._runner.states.release(request_id)

    @property
    def left_out(self) -> dict[str, LeftOut]:
        """See `Proposer.left_out`. One that needs states returns once there is room; others come back by themselves."""
        return {
            name: LeftOut(
                reason, self.reads_states and reason != _TOO_LONG and self._has_room(name, num_rows)
            )
            for name, (reason, num_rows) in self._left_out.items()
        }

    def _leave_out(self, request_id: str, reason: str, num_rows: int) -> None:
        """Drop the state of a request that nothing is drafted for."""
        self.drop(request_id)
        self._left_out[request_id] = reason, num_rows

    def _has_room(self, request_id: str, num_rows: int) -> bool:
        """Return whether a request would find room, and stay for a while; alone it needs no more than its rows."""
        states = self._runner.states
        if states is not None and len(self.states) >= states.max_requests:
            return False
        if self.states:
            num_rows = min(num_rows + max(_LEAST_GROWTH, num_rows // 4), self.pool.num_slots)
        return self.pool.has_room(request_id, num_rows)

    def _reserve(self, batch: ProposeBatch, request_id: str, num_slots: int, num_kept: int) -> bool:
        """Make room for a request, evicting requests outside the batch if needed; these restart, or resume from a prefix."""
        states = self._runner.states
        has_room = states is None or len(self.states) <= states.max_requests
        if has_room and self.pool.reserve(request_id, num_slots, num_kept):
            return True
        for other in self.states.keys() - set(batch.request_ids):
            self.drop(other)
        if self.pool.has_room(request_id, num_slots):
            self.pool.gather_room(request_id)
            if self.pool.reserve(request_id, num_slots, num_kept):
                return True
        self.pool.note_full(num_slots)
        return False

    def _forget_from(self, request_id: str, state: RequestState, prefix: TokenIds) -> None:
        """Forget the rows behind a prefix `[n]` of a request's tokens, if there are any."""
        state.is_ahead = False
        if len(prefix) == state.num_tokens:
            return
        num_ids = self._vocabulary.num_draft_ids(prefix)
        self.pool.forget_from(request_id, num_ids)
        state.hold(len(prefix), num_ids)
        state.drafted = []
        self._read_carries(request_id, state)

    def _read_carries(self, request_id: str, state: RequestState) -> None:
        """Read the carry of each stage's last row; the last stage's is not needed, because no stage follows it."""
        state.carries = {}
        for stage in range(self.num_stages - 1):
            num_rows = self.num_rows(state, stage)
            if num_rows:
                last = self.pool.first_slot(request_id) + num_rows - 1
                state.carries[stage] = self._runner.cache.keys[_carry_layer(stage)][last, 0].clone()


def _carry_layer(stage: int) -> int:
    """Return the cache layer that stores the carries of a stage; the head's own layers are counted from 0."""
    return -1 - stage
