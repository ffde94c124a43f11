"""Manages the rows of all requests in a head's cache."""

from __future__ import annotations

import torch

from specdec.interfaces import DraftHead, HostIds, LayerShape, ProposeBatch, Runner, TargetInfo
from specdec.runner import SlotPool
from specdec_drafting.head_context import HeadContext


class HeadRows:
    """Keeps requests in the cache of a head, and reuses the rows of earlier requests with the same prefix.

    A row depends only on the tokens up to its own, so blocks of rows are identified by their tokens. The last slot of a block
    (of stage s, the last s + 1) has the row of a token of the next block: where texts part at a block boundary, it may be the
    other text's, which can only cost acceptance. For heads with several
    stages the cache also stores the carry of each row, from which the next stage continues after a rollback.

    Args:
        runner: the head's runner. Its cache may be allocated later.
        info: gives the prefix block size.
        max_len: maximum text length that is drafted for.
    """

    def __init__(self, runner: Runner, info: TargetInfo, max_len: int) -> None:
        self._runner = runner
        self._max_len = max_len
        self._prefix_block_size = info.prefix_block_size
        assert isinstance(runner.module, DraftHead)
        self._num_stages = runner.module.num_stages
        self._made: SlotPool | None = None
        self.contexts: dict[str, HeadContext] = {}
        shape = LayerShape(1, runner.module.feature_size, 0, runner.dtype)
        for stage in range(self._num_stages - 1):
            runner.cache.allocate(_carry_layer(stage), shape)

    @property
    def pool(self) -> SlotPool:
        """The slot allocator; created with the first request."""
        if self._made is None:
            self._made = SlotPool(self._runner.cache, self._prefix_block_size)
        return self._made

    def update(self, batch: ProposeBatch, row: int, num_ahead: int) -> HeadContext:
        """Return a request's context, set to where its new tokens start, with room for them and `num_ahead` rows."""
        request_id, start = batch.request_ids[row], batch.starts[row]
        context = self.contexts.get(request_id)
        if context is None or start == 0:
            context = self._begin(request_id, 0)
        self._forget_from(request_id, context, start)
        if start > context.num_tokens:
            context.is_lost = True
        has_rows = batch.counts[row] or context.num_tokens  # else its states are gone, or not there yet
        if not context.is_lost and has_rows and not self._reserve(batch, row, num_ahead, context):
            self.pool.release(request_id)
            context.is_lost = True
        context.num_tokens = start
        return context

    def _reserve(self, batch: ProposeBatch, row: int, num_ahead: int, context: HeadContext) -> bool:
        """Make room for a request, evicting requests outside the batch if needed; these restart, or resume from a prefix."""
        num_tokens, num_kept = batch.num_tokens[row], max(context.num_rows)
        if num_tokens > self._max_len:
            return False
        request_id = batch.request_ids[row]
        if self.pool.reserve(request_id, num_tokens + num_ahead, num_kept):
            return True
        for other in self.contexts.keys() - set(batch.request_ids):
            self.drop(other)
        if num_kept:
            self.pool.gather_room(request_id)
        if self.pool.reserve(request_id, num_tokens + num_ahead, num_kept):
            return True
        self.pool.note_full(num_tokens)
        return False

    def resume(self, request_id: str, token_ids: HostIds) -> int:
        """Reuse the cached rows of a prefix `[n]`; returns how many of its tokens are held. See `Proposer.resume`.

        Returns n if the request is too long; nothing is then drafted for it. If there is no room, returns 0: `update`, which
        knows the batch, makes room.
        """
        count = len(token_ids)
        context = self.contexts.get(request_id)
        if context is not None and not context.is_lost and context.num_tokens >= count:
            self._forget_from(request_id, context, count)  # it was preempted
            return count
        if count >= self._max_len:
            self._begin(request_id, count).is_lost = True
            return count
        held = self.pool.resume(request_id, token_ids)
        if not held:
            self.drop(request_id)
            return 0
        context = self._begin(request_id, held)
        self._read_carries(request_id, context)
        return held

    def keep(self, request_id: str, stage: int, carries: torch.Tensor) -> None:
        """Record the carries `[n, F]`, n > 0, of rows that a stage has just run for a request."""
        context = self.contexts[request_id]
        if stage < self._num_stages - 1:
            first = self.pool.first_slot(request_id) + context.num_rows[stage]
            keys = self._runner.cache.keys[_carry_layer(stage)]
            keys[first : first + len(carries), 0] = carries.to(keys.dtype)
        context.keep(stage, carries)

    def drop(self, request_id: str) -> None:
        """Drop the state of a request; unknown requests are ignored."""
        self.contexts.pop(request_id, None)
        if self._made is not None:
            self._made.release(request_id)

    def _begin(self, request_id: str, num_tokens: int) -> HeadContext:
        self.pool.forget_from(request_id, num_tokens)
        context = self.contexts[request_id] = HeadContext()
        context.hold(num_tokens, self._num_stages)
        return context

    def _forget_from(self, request_id: str, context: HeadContext, start: int) -> None:
        if context.forget_from(start):
            self.pool.forget_from(request_id, start)
            self._read_carries(request_id, context)

    def _read_carries(self, request_id: str, context: HeadContext) -> None:
        """Read the carry of each stage's last row; the last stage's is not needed, because no stage follows it."""
        if context.is_lost:
            return
        for stage, num_rows in enumerate(context.num_rows[:-1]):
            if num_rows:
                last = self.pool.first_slot(request_id) + num_rows - 1
                context.last_carry[stage] = self._runner.cache.keys[_carry_layer(stage)][last, 0].clone()


def _carry_layer(stage: int) -> int:
    """Return the cache layer that stores the carries of a stage; the head's own layers are counted from 0."""
    return -1 - stage
