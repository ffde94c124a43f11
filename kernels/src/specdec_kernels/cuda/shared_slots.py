"""Places requests in a cache that is read by block tables: cached prefixes are shared."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specdec.engine import SlotPool
from specdec_kernels.cuda.shared_blocks import SharedBlocks
from specdec_runtime.interfaces import KVCache

Ids = npt.NDArray[np.int32] | npt.NDArray[np.int64]


class _Shared(NamedTuple):
    """The first blocks of a request that are not its own."""

    blocks: range
    keys: list[int]
    """Keys of the prefixes that end with these blocks, though nobody else may find them there any more."""
    first_slot: int | None = None
    """Key of the request in `KVCache.shared`; None of one that is not there yet."""


_NOTHING = _Shared(range(0), [])


class SharedSlots(SlotPool):
    """A `SlotPool` whose requests read a cached prefix where it is, and have a run for the rows behind it alone.

    Blocks of a prefix that somebody reads are held, and nobody writes them, whatever becomes of the request that did. A prefix
    in several places is read in the first of them and copied from the others; if less than half of it is there, all is copied,
    and later requests share the copy. A request without others gets one run, as in `SlotPool`, so that it always fits.

    Args:
        cache: the cache, whose attention reads `KVCache.shared`.
        prefix_block_size: see `SlotPool`, like `block_size`.
        block_size: ids per block without prefix reuse.
    """

    def __init__(self, cache: KVCache, prefix_block_size: int = 0, *, block_size: int = 16) -> None:
        super().__init__(cache, prefix_block_size, block_size=block_size)
        self._blocks: SharedBlocks = SharedBlocks(self._blocks.num_blocks)
        self._shared: dict[Hashable, _Shared] = {}
        self._places = cache.shared
        self._refused: tuple[Hashable, int] | None = None
        """A request that `rewrite_from` had no room for, and the number of blocks that were free."""

    def place(
        self, request_id: Hashable, ids: Ids, *, num_rows: int, num_new: int, most_slots: int
    ) -> int | None:
        """Give a request a run behind the longest cached prefix, which stays where it is.

        A request that was refused gets a run once more blocks are free than then.
        """
        if self._refused is not None and self._refused[0] == request_id:
            if self._runs and self._blocks.num_free <= self._refused[1]:
                return None
            self._refused = None
        return super().place(request_id, ids, num_rows=num_rows, num_new=num_new, most_slots=most_slots)

    def first_slot(self, request_id: Hashable) -> int:
        """Return the slot that position 0 would have if the run began there; negative at the cache's beginning."""
        return super().first_slot(request_id) - self.num_shared_slots(request_id)

    def reserve(self, request_id: Hashable, num_slots: int, num_kept: int) -> bool:
        """Make room for `num_slots` rows of a request, of which shared ones stay where they are; False without room."""
        num_shared, run = self.num_shared_slots(request_id), self._runs[request_id]
        if num_slots - num_shared <= run.num_blocks * self._block_size:
            return super().reserve(request_id, num_slots - num_shared, num_kept - num_shared)
        self._avoid(num_shared // self._block_size)
        is_reserved = super().reserve(request_id, num_slots - num_shared, num_kept - num_shared)
        self._tell(request_id)
        return is_reserved

    def publish(self, request_id: Hashable, ids: Ids) -> None:
        """Publish the full blocks of a request for prefix reuse."""
        super().publish(request_id, ids[self.num_shared_slots(request_id) :])

    def rewrite_from(self, request_id: Hashable, num_ids: int) -> bool:
        """Give a request that would write shared blocks a run that begins before them; False without room."""
        shared, run = self._blocks_of(request_id), self._runs[request_id]
        num_kept = num_ids // self._block_size
        if num_kept >= len(shared):
            num_own = num_kept - len(shared)
            # Nobody may read what is being written; it is published again.
            self._prefixes.forget(run.start + num_own, max(0, len(run.keys) - num_own))
            return super().rewrite_from(request_id, num_ids - len(shared) * self._block_size)
        needed, most = run.num_needed + len(shared), run.most_blocks + len(shared)
        kept = _Shared(shared[:num_kept], self._shared[request_id].keys[:num_kept])
        # Held meanwhile, so that the request's own release does not give them to others.
        self._blocks.hold(shared)
        self.release(request_id)
        is_placed = self._place_behind(request_id, kept, needed, most, []) is not None
        num_rows = num_ids % self._block_size
        if is_placed and num_rows:
            size = self._block_size
            self._cache.copy(shared[num_kept] * size, self._runs[request_id].start * size, num_rows)
        self._blocks.free(shared.start, len(shared))
        if not is_placed:
            self._refused = request_id, self._blocks.num_free
        return is_placed

    def release(self, request_id: Hashable) -> None:
        """Free a request's slots, but for blocks that others read."""
        super().release(request_id)
        blocks, _, first_slot = self._shared.pop(request_id, _NOTHING)
        if first_slot is not None:
            del self._places[first_slot]
            self._blocks.free(blocks.start, len(blocks))

    def _place(self, request_id: Hashable, needed: int, most: int, blocks: list[int]) -> int | None:
        shared = _first_run(blocks)
        # Less than half is copied instead, and later requests share the copy. One without others gets a run, which always fits.
        if self._runs and shared and 2 * len(shared) >= len(blocks):
            known = _Shared(shared, [self._prefixes.key_of(block) for block in shared])
            num_rows = self._place_behind(request_id, known, needed, most, blocks[len(shared) :])
            if num_rows is not None:
                return num_rows
        return self._place_behind(request_id, _NOTHING, needed, most, blocks)

    def _place_behind(
        self, request_id: Hashable, known: _Shared, needed: int, most: int, blocks: list[int]
    ) -> int | None:
        """Give a request a run behind shared blocks, with the rows of more cached blocks; see `SlotPool._place`."""
        shared = known.blocks
        count = len(shared)
        if shared:
            self._end_headroom(shared)
            self._blocks.hold(shared)
        self._avoid(count)
        num_rows = super()._place(request_id, needed - count, most - count, blocks)
        if num_rows is None:
            self._blocks.free(shared.start, count)
            return None
        if shared:
            self._runs[request_id].parent = known.keys[-1]
            self._shared[request_id] = known
            self._tell(request_id)
        return num_rows + count * self._block_size

    def _end_headroom(self, blocks: range) -> None:
        """Let headroom of runs, where cached blocks may be, end before blocks that are to be held."""
        for run in self._runs.values():
            kept = max(run.num_needed, blocks.start - run.start)
            if kept < run.num_blocks and run.start + kept < blocks.stop:
                self._blocks.free(run.start + kept, run.num_blocks - kept)
                run.num_blocks = kept

    def _avoid(self, num_shared: int) -> None:
        """Let no run behind so many shared blocks begin where position 0 would be that of another request."""
        firsts = (self.first_slot(other) // self._block_size for other in self._runs)
        self._blocks.avoided = {first + num_shared for first in firsts}

    def _tell(self, request_id: Hashable) -> None:
        """Say where a request's shared rows are, if it has any."""
        blocks, keys, before = self._shared.get(request_id, _NOTHING)
        first_slot = self.first_slot(request_id)
        if blocks:
            if before is not None:
                del self._places[before]
            self._shared[request_id] = _Shared(blocks, keys, first_slot)
            self._places[first_slot] = blocks.start * self._block_size, len(blocks) * self._block_size

    def _blocks_of(self, request_id: Hashable) -> range:
        return self._shared.get(request_id, _NOTHING).blocks

    def num_shared_slots(self, request_id: Hashable) -> int:
        """Return how many slots of a request belong to shared blocks."""
        return len(self._blocks_of(request_id)) * self._block_size


def _first_run(blocks: list[int]) -> range:
    """Return how far blocks follow each other."""
    if not blocks:
        return range(0)
    breaks = np.flatnonzero(np.diff(blocks) != 1)
    return range(blocks[0], blocks[0] + (int(breaks[0]) + 1 if len(breaks) else len(blocks)))
