"""Places the rows of requests in a KV cache, the target's or that of a proposer's model."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass, field

from specdec.interfaces.score_batch import SlotCache
from specdec.runner.block_allocator import BlockAllocator
from specdec.runner.prefix_cache import Ids, PrefixCache

logger = logging.getLogger("specdec")

_BLOCK_SIZE = 16
_HEADROOM_BLOCKS = 16


@dataclass(slots=True)
class _Run:
    """The blocks of one request."""

    start: int
    num_blocks: int
    num_needed: int
    """Blocks of the run that the request needs; the rest is headroom."""
    most_blocks: int
    """Blocks that the request can ever need."""
    keys: list[int] = field(default_factory=list)
    """Keys of its published prefixes, each one block longer than the one before."""


class SlotPool:
    """Gives each request one contiguous run of cache slots, which grows with the request and moves if necessary.

    Runs have headroom, which can be reclaimed when another request needs the room. Until published rows are overwritten,
    a later request with the same prefix can reuse them.

    Args:
        cache: the cache of the model.
        prefix_block_size: ids per prefix cache block (`TargetInfo.prefix_block_size`); 0 disables prefix reuse.
        block_size: ids per block without prefix reuse.
        reclaims: whether headroom is reclaimed.
    """

    def __init__(
        self,
        cache: SlotCache,
        prefix_block_size: int = 0,
        *,
        block_size: int = _BLOCK_SIZE,
        reclaims: bool = True,
    ) -> None:
        self._cache = cache
        self._block_size = prefix_block_size or block_size
        self._blocks = BlockAllocator(cache.num_slots // self._block_size)
        self._prefixes = PrefixCache(self._block_size)
        self._keeps_prefixes = prefix_block_size > 0
        self._reclaims = reclaims
        self._runs: dict[Hashable, _Run] = {}
        self._has_warned = False

    @property
    def num_slots(self) -> int:
        """Number of slots of the whole cache."""
        return self._blocks.num_blocks * self._block_size

    @property
    def num_free_slots(self) -> int:
        """Number of slots that belong to no request."""
        return self._blocks.num_free * self._block_size

    def place(
        self, request_id: Hashable, ids: Ids, *, num_rows: int, num_new: int, most_slots: int
    ) -> int | None:
        """Give a request a run with the rows of the longest cached prefix of its `ids` `[n]`.

        Args:
            request_id: the request; it has no run.
            ids: with none, no prefix is reused.
            num_rows: rows that the request has.
            num_new: how many of them must fit behind the prefix.
            most_slots: rows that the request can ever need; no headroom is kept beyond.

        Returns:
            the number of rows of the prefix; None if there is no room, and it gets no run.
        """
        blocks = self._prefixes.match(ids, len(ids))
        num_slots = min(num_rows, len(blocks) * self._block_size + num_new)
        needed, most = (-(-count // self._block_size) for count in (num_slots, most_slots))
        run = self._place(request_id, needed, most, blocks)
        return None if run is None else len(run.keys) * self._block_size

    def first_slot(self, request_id: Hashable) -> int:
        """Return the slot of position 0 of a request that has a run."""
        return self._runs[request_id].start * self._block_size

    def reserve(self, request_id: Hashable, num_slots: int, num_kept: int) -> bool:
        """Make room for `num_slots` rows of a request; returns False without changing its run if there is no room.

        Args:
            request_id: the request; it gets a run if it has none.
            num_slots: total number of rows it needs.
            num_kept: rows that are copied if its run has to move.
        """
        needed = -(-num_slots // self._block_size)
        run = self._runs.get(request_id)
        if run is None:
            return self._place(request_id, needed, self._blocks.num_blocks) is not None
        if needed > run.num_blocks and not self._grow(run, needed, num_kept):
            self._trim()
            if not self._grow(run, needed, num_kept):
                return False
        if needed > run.num_needed:
            self._prefixes.forget(run.start + run.num_needed, needed - run.num_needed)
        run.num_needed = needed
        return True

    def resume(self, request_id: Hashable, ids: Ids) -> int | None:
        """Give a request a new run with the rows of the longest cached prefix of its `ids` `[n]`.

        Returns:
            the number of its rows; 0, and it gets no run, if nothing is cached; None if there is no room.
        """
        self.release(request_id)
        blocks = self._prefixes.match(ids, len(ids))
        if not blocks:
            return 0
        run = self._place(request_id, len(blocks), self._blocks.num_blocks, blocks)
        return None if run is None else len(run.keys) * self._block_size

    def is_publishable(self, request_id: Hashable, num_rows: int) -> bool:
        """Return whether the first `num_rows` rows of a request fill a block that has not been published."""
        return self._keeps_prefixes and num_rows // self._block_size > len(self._runs[request_id].keys)

    def publish(self, request_id: Hashable, ids: Ids) -> None:
        """Publish the full blocks of a request's rows for prefix reuse.

        Args:
            request_id: the request.
            ids: `[n]` ids of its first n rows, always of one dtype. The last rows of a block need not be written yet
                if the caller runs them again after `resume`.
        """
        if not self._keeps_prefixes:
            return
        run, size = self._runs[request_id], self._block_size
        for index in range(len(run.keys), len(ids) // size):
            parent = run.keys[-1] if run.keys else 0
            block_ids = ids[index * size : (index + 1) * size]
            run.keys.append(self._prefixes.publish(parent, block_ids, run.start + index))

    def forget_from(self, request_id: Hashable, num_ids: int) -> None:
        """Unpublish a request's rows behind its first `num_ids` ids, because other rows will overwrite them."""
        run = self._runs.get(request_id)
        if run is not None:
            kept = num_ids // self._block_size
            self._prefixes.forget(run.start + kept, max(0, len(run.keys) - kept))
            del run.keys[kept:]

    def rewrite_from(self, request_id: Hashable, num_ids: int) -> None:
        """Note that a request computes its rows behind the first `num_ids` ids again, to the same values."""
        del self._runs[request_id].keys[num_ids // self._block_size :]

    def gather_room(self, request_id: Hashable) -> None:
        """Compact all runs so that all free blocks follow the run of a request, which can then grow.

        The first slots of all requests change. This copies most of the cache; use it only when `reserve` has found
        no room.
        """
        self._trim()
        runs = sorted(self._runs.values(), key=lambda run: run.start)
        growing = runs.index(self._runs[request_id])
        start = 0
        for run in runs[: growing + 1]:
            self._move(run, start)
            start += run.num_blocks
        end = self._blocks.num_blocks
        for run in reversed(runs[growing + 1 :]):
            end -= run.num_blocks
            self._move(run, end)

    def _move(self, run: _Run, start: int) -> None:
        """Move a run to blocks that are free or part of the run itself."""
        if start == run.start:
            return
        count, size = run.num_blocks, self._block_size
        self._blocks.free(run.start, count)
        is_free = self._blocks.extend(start, count)
        assert is_free, "a run is moved to where another lies"
        own = range(run.start, run.start + count)
        for block in range(start, start + count):
            if block not in own:
                self._prefixes.forget(block, 1)
        self._cache.copy(run.start * size, start * size, count * size)
        self._prefixes.move(run.start, start, len(run.keys))
        run.start = start

    def note_full(self, num_rows: int) -> None:
        """Warn once that there is no room for a request of `num_rows` rows, which therefore gets no drafts."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the draft's cache has no room for %d rows of a request beside those that run, so it gets no drafts (logged "
                "once); num_gpu_blocks_override or gpu_memory_utilization make room, max_num_seqs has fewer run", num_rows,
            )  # fmt: skip

    def release(self, request_id: Hashable) -> None:
        """Free a request's slots, if it has any. Its published rows stay reusable."""
        run = self._runs.pop(request_id, None)
        if run is not None:
            self._blocks.free(run.start, run.num_blocks)

    def _place(
        self, request_id: Hashable, needed: int, most: int, blocks: list[int] | None = None
    ) -> _Run | None:
        """Give a request a run, with headroom if possible, and copy the rows of cached blocks into it."""
        found = self._allocate(needed, most)
        if found is None:
            self._trim()
            found = self._allocate(needed, most)
        if found is None:
            return None
        run = self._runs[request_id] = _Run(*found, needed, most)
        # Cached prefixes in the headroom stay valid until the request needs the headroom.
        run.keys = self._prefixes.take_over(self._cache, blocks or [], run.start, needed)
        return run

    def _grow(self, run: _Run, needed: int, num_kept: int) -> bool:
        """Extend a run, with headroom if possible."""
        for wanted in _sizes(needed, run.most_blocks):
            if self._blocks.extend(run.start + run.num_blocks, wanted - run.num_blocks):
                run.num_blocks = wanted
                return True
        found = self._allocate(needed, run.most_blocks)
        if found is None:
            return False
        start, num_blocks = found
        self._prefixes.forget(start, run.num_needed)
        if num_kept:
            self._cache.copy(run.start * self._block_size, start * self._block_size, num_kept)
        self._prefixes.move(run.start, start, len(run.keys))
        self._blocks.free(run.start, run.num_blocks)
        run.start, run.num_blocks = start, num_blocks
        return True

    def _allocate(self, needed: int, most: int) -> tuple[int, int] | None:
        for wanted in _sizes(needed, most):
            start = self._blocks.allocate(wanted)
            if start is not None:
                return start, wanted
        return None

    def _trim(self) -> None:
        """Free the headroom of all runs, if it is reclaimed."""
        for run in self._runs.values() if self._reclaims else ():
            if run.num_blocks > run.num_needed:
                self._blocks.free(run.start + run.num_needed, run.num_blocks - run.num_needed)
                run.num_blocks = run.num_needed


def _sizes(needed: int, most: int) -> tuple[int, int]:
    """Return the numbers of blocks to try for a run: with headroom, then without."""
    return max(needed, min(needed + _HEADROOM_BLOCKS, most)), needed
