"""Places the rows of a proposer's requests in the cache of its model."""

from __future__ import annotations

import logging
from collections.abc import Hashable

import numpy as np
import numpy.typing as npt

from specdec.engine import SlotPool

logger = logging.getLogger("specdec")

Ids = npt.NDArray[np.int32] | npt.NDArray[np.int64]


class RequestSlots(SlotPool):
    """A `SlotPool` whose requests come unannounced, change their texts, and make room for each other.

    Headroom of runs is reclaimed when another request needs the room.
    """

    _has_warned = False

    def reserve(self, request_id: Hashable, num_slots: int, num_kept: int) -> bool:
        """See `SlotPool.reserve`; a request without a run gets one."""
        if request_id not in self._runs:
            needed = -(-num_slots // self._block_size)
            return self._place(request_id, needed, self._blocks.num_blocks, []) is not None
        if super().reserve(request_id, num_slots, num_kept):
            return True
        self._trim()
        return super().reserve(request_id, num_slots, num_kept)

    def extend(self, request_id: Hashable, num_slots: int) -> bool:
        """Make room for `num_slots` rows of a request if its run has it already; returns whether it has."""
        run = self._runs.get(request_id)  # a request of whose prompt nothing has run has none
        has_room = run is not None and num_slots <= run.num_blocks * self._block_size
        return has_room and super().reserve(request_id, num_slots, 0)

    def resume(self, request_id: Hashable, ids: Ids) -> int | None:
        """Give a request a new run with the rows of the longest cached prefix of its `ids` `[n]`.

        Returns:
            the number of its rows; 0, and it gets no run, if nothing is cached; None if there is no room.
        """
        self.release(request_id)
        blocks = self._prefixes.match(ids)
        return self._place(request_id, len(blocks), self._blocks.num_blocks, blocks) if blocks else 0

    def is_publishable(self, request_id: Hashable, num_rows: int) -> bool:
        """Return whether the first `num_rows` rows of a request fill a block that has not been published."""
        return self._keeps_prefixes and num_rows // self._block_size > len(self._runs[request_id].keys)

    def forget_from(self, request_id: Hashable, num_ids: int) -> None:
        """Unpublish a request's rows behind its first `num_ids` ids, because other rows will overwrite them."""
        run = self._runs.get(request_id)
        if run is not None:
            kept = num_ids // self._block_size
            self._prefixes.forget(run.start + kept, max(0, len(run.keys) - kept))
            del run.keys[kept:]

    def has_room(self, request_id: Hashable, num_slots: int) -> bool:
        """Return whether `gather_room` can make room for `num_slots` rows of a request."""
        own = self._runs[request_id].num_blocks if request_id in self._runs else 0
        headroom = sum(run.num_blocks - run.num_needed for run in self._runs.values())
        return -(-num_slots // self._block_size) <= own + self._blocks.num_free + headroom

    def gather_room(self, request_id: Hashable) -> None:
        """Compact all runs so that all free blocks follow the run of a request, or all runs if it has none yet.

        The first slots of all requests change. This copies most of the cache; use it only when `reserve` has found
        no room.
        """
        self._trim()
        names = sorted(self._runs, key=lambda name: self._runs[name].start)
        growing = names.index(request_id) if request_id in self._runs else len(names) - 1
        start = 0
        for name in names[: growing + 1]:
            self._move(name, start)
            start += self._runs[name].num_blocks
        end = self._blocks.num_blocks
        for name in reversed(names[growing + 1 :]):
            end -= self._runs[name].num_blocks
            self._move(name, end)

    def note_full(self, num_rows: int) -> None:
        """Warn once that there is no room for a request of `num_rows` rows, which therefore gets no drafts."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the draft's cache has no room for %d rows of a request beside those that run, so it gets no drafts (logged "
                "once); num_gpu_blocks_override or gpu_memory_utilization make room, max_num_seqs has fewer run", num_rows,
            )  # fmt: skip

    def _place(self, request_id: Hashable, needed: int, most: int, blocks: list[int]) -> int | None:
        found = super()._place(request_id, needed, most, blocks)
        if found is None:
            self._trim()
            found = super()._place(request_id, needed, most, blocks)
        return found

    def _move(self, request_id: Hashable, start: int) -> None:
        """Move a run to blocks that are free or part of the run itself."""
        run = self._runs[request_id]
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

    def _trim(self) -> None:
        """Free the headroom of all runs."""
        for run in self._runs.values():
            if run.num_blocks > run.num_needed:
                self._blocks.free(run.start + run.num_needed, run.num_blocks - run.num_needed)
                run.num_blocks = run.num_needed
