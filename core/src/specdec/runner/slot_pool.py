"""Places the requests of a proposer in the cache of its own model."""

from __future__ import annotations

from specdec.runner.block_allocator import BlockAllocator
from specdec.runner.kv_cache import KVCache

_BLOCK_SIZE = 16
_HEADROOM_BLOCKS = 16


class SlotPool:
    """Gives each request one contiguous run of cache slots, which grows with it and moves where it has to.

    Args:
        cache: the cache of the model.
    """

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._blocks = BlockAllocator(cache.num_slots // _BLOCK_SIZE)
        self._runs: dict[str, tuple[int, int]] = {}

    def first_slot(self, request_id: str) -> int:
        """Return the slot of a placed request's position 0."""
        return self._runs[request_id][0] * _BLOCK_SIZE

    def reserve(self, request_id: str, num_slots: int, num_kept: int) -> bool:
        """Make room for `num_slots` rows of a request; returns False, and leaves it as it is, if there is none.

        Args:
            request_id: the request; one that is not placed yet is.
            num_slots: rows it needs in all.
            num_kept: rows that are moved along if its run has to move.
        """
        needed = -(-num_slots // _BLOCK_SIZE)
        start, held = self._runs.get(request_id, (0, 0))
        if needed <= held:
            return True
        for wanted in (needed + _HEADROOM_BLOCKS, needed):
            if held and self._blocks.extend(start + held, wanted - held):
                self._runs[request_id] = start, wanted
                return True
        for wanted in (needed + _HEADROOM_BLOCKS, needed):
            new = self._blocks.allocate(wanted)
            if new is not None:
                if num_kept:
                    self._cache.copy(start * _BLOCK_SIZE, new * _BLOCK_SIZE, num_kept)
                self.release(request_id)
                self._runs[request_id] = new, wanted
                return True
        return False

    def release(self, request_id: str) -> None:
        """Give a request's slots back; nothing happens for one that is not placed."""
        start, held = self._runs.pop(request_id, (0, 0))
        if held:
            self._blocks.free(start, held)
