"""Places the requests of a proposer in the cache of its own model."""

from __future__ import annotations

from specdec.runner.block_allocator import BlockAllocator
from specdec.runner.kv_cache import KVCache

_BLOCK_SIZE = 16
_HEADROOM_BLOCKS = 16


class SlotPool:
    """Gives each request one contiguous run of cache slots, which grows with it and moves where it has to.

    Runs have headroom, which is taken back where another request has no room.

    Args:
        cache: the cache of the model.
    """

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._blocks = BlockAllocator(cache.num_slots // _BLOCK_SIZE)
        self._runs: dict[str, tuple[int, int]] = {}
        self._needed: dict[str, int] = {}
        """Blocks that each request needs of its run."""

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
        if needed > self._runs.get(request_id, (0, 0))[1] and not self._place(request_id, needed, num_kept):
            self._trim()
            if not self._place(request_id, needed, num_kept):
                return False
        self._needed[request_id] = needed
        return True

    def release(self, request_id: str) -> None:
        """Give a request's slots back; nothing happens for one that is not placed."""
        start, held = self._runs.pop(request_id, (0, 0))
        self._needed.pop(request_id, None)
        if held:
            self._blocks.free(start, held)

    def _place(self, request_id: str, needed: int, num_kept: int) -> bool:
        """Give a request a longer run, with headroom if there is room for it."""
        start, held = self._runs.get(request_id, (0, 0))
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

    def _trim(self) -> None:
        """Take back the headroom of all runs."""
        for request_id, (start, held) in self._runs.items():
            needed = self._needed[request_id]
            if held > needed:
                self._blocks.free(start + needed, held - needed)
                self._runs[request_id] = start, needed
