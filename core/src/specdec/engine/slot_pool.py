"""Places the rows of requests in a KV cache."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from specdec.engine.prefix_cache import Ids, PrefixCache
from specdec.interfaces.score_batch import SlotCache

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
    parent: int = 0
    """Key of the prefix that precedes the run."""


class SlotPool:
    """Gives each request one contiguous run of cache slots, which grows with the request and moves if necessary.

    Runs have headroom. Until published rows are overwritten, a later request with the same prefix can reuse them.
    For models of proposers there is `specdec_runtime.drafting.RequestSlots`.

    Args:
        cache: the cache of the model.
        prefix_block_size: ids per prefix cache block (`TargetInfo.prefix_block_size`); 0 disables prefix reuse.
        block_size: ids per block without prefix reuse.
    """

    def __init__(
        self, cache: SlotCache, prefix_block_size: int = 0, *, block_size: int = _BLOCK_SIZE
    ) -> None:
        self._cache = cache
        self._block_size = prefix_block_size or block_size
        self._blocks = BlockAllocator(cache.num_slots // self._block_size)
        self._prefixes = PrefixCache(self._block_size)
        self._keeps_prefixes = prefix_block_size > 0
        self._runs: dict[Hashable, _Run] = {}

    @property
    def num_slots(self) -> int:
        """Number of slots of the whole cache."""
        return self._blocks.num_blocks * self._block_size

    @property
    def num_free_slots(self) -> int:
        """Number of slots that belong to no request."""
        return self._blocks.num_free * self._block_size

    def num_shared_slots(self, request_id: Hashable) -> int:
        """Return how many slots of a request are not its own; none here, see `KVCache.shared`."""
        return 0

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
        blocks = self._prefixes.match(ids)
        num_slots = min(num_rows, len(blocks) * self._block_size + num_new)
        needed, most = (-(-count // self._block_size) for count in (num_slots, most_slots))
        return self._place(request_id, needed, most, blocks)

    def first_slot(self, request_id: Hashable) -> int:
        """Return the slot of position 0 of a request that has a run."""
        return self._runs[request_id].start * self._block_size

    def reserve(self, request_id: Hashable, num_slots: int, num_kept: int) -> bool:
        """Make room for `num_slots` rows of a request; returns False without changing its run if there is no room.

        Args:
            request_id: the request.
            num_slots: total number of rows it needs.
            num_kept: rows that are copied if its run has to move.
        """
        needed, run = -(-num_slots // self._block_size), self._runs[request_id]
        if needed > run.num_blocks and not self._grow(run, needed, num_kept):
            return False
        if needed > run.num_needed:
            self._prefixes.forget(run.start + run.num_needed, needed - run.num_needed)
        run.num_needed = needed
        return True

    def publish(self, request_id: Hashable, ids: Ids) -> None:
        """Publish the full blocks of a request's rows for prefix reuse.

        Args:
            request_id: the request.
            ids: `[n]` ids of its first n rows, always of one dtype. The last rows of a block need not be written yet
                if the caller runs them again after a later request has got them.
        """
        if not self._keeps_prefixes:
            return
        run, size = self._runs[request_id], self._block_size
        for index in range(len(run.keys), len(ids) // size):
            parent = run.keys[-1] if run.keys else run.parent
            block_ids = ids[index * size : (index + 1) * size]
            run.keys.append(self._prefixes.publish(parent, block_ids, run.start + index))

    def forget_prefixes(self) -> None:
        """Let no later request find the rows of earlier ones; those that have a run keep their rows."""
        self._prefixes.clear()

    def rewrite_from(self, request_id: Hashable, num_ids: int) -> bool:
        """Note that a request computes its rows behind the first `num_ids` ids again; False, and no run, without room."""
        del self._runs[request_id].keys[num_ids // self._block_size :]
        return True

    def release(self, request_id: Hashable) -> None:
        """Free a request's slots, if it has any. Its published rows stay reusable."""
        run = self._runs.pop(request_id, None)
        if run is not None:
            self._blocks.free(run.start, run.num_blocks)

    def _place(self, request_id: Hashable, needed: int, most: int, blocks: list[int]) -> int | None:
        """Give a request a run, with headroom if possible, and copy rows of cached blocks into it; returns their number."""
        found = self._allocate(needed, most)
        if found is None:
            return None
        run = self._runs[request_id] = _Run(*found, needed, most)
        # Cached prefixes in the headroom stay valid until the request needs the headroom.
        run.keys = self._prefixes.take_over(self._cache, blocks, run.start, needed)
        return len(run.keys) * self._block_size

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


class BlockAllocator:
    """Next-fit allocation of contiguous block runs; the most recently freed blocks are reused last.

    Args:
        num_blocks: blocks in the cache.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = self.num_free = num_blocks
        self._used = bytearray(num_blocks)
        self._cursor = 0

    def allocate(self, num_blocks: int) -> int | None:
        """Allocate a run of blocks; return its first block, or None if no free run is long enough."""
        wanted = bytes(num_blocks)
        start = self._used.find(wanted, self._cursor)
        if start < 0:
            start = self._used.find(wanted)
        if start < 0:
            return None
        self._mark(start, num_blocks, 1)
        self._cursor = start + num_blocks
        return start

    def extend(self, end: int, num_blocks: int) -> bool:
        """Allocate the `num_blocks` blocks from block `end` on, just behind a run, if all are free."""
        if end + num_blocks > self.num_blocks or any(self._used[end : end + num_blocks]):
            return False
        self._mark(end, num_blocks, 1)
        # Otherwise the next allocation would reuse this run's newest blocks as soon as it is freed.
        if end <= self._cursor < end + num_blocks:
            self._cursor = end + num_blocks
        return True

    def free(self, start: int, num_blocks: int) -> None:
        """Free a run."""
        self._mark(start, num_blocks, 0)

    def _mark(self, start: int, num_blocks: int, value: int) -> None:
        assert all(used != value for used in self._used[start : start + num_blocks])
        self._used[start : start + num_blocks] = bytes([value]) * num_blocks
        self.num_free += num_blocks if value == 0 else -num_blocks


def _sizes(needed: int, most: int) -> tuple[int, int]:
    """Return the numbers of blocks to try for a run: with headroom, then without."""
    return max(needed, min(needed + _HEADROOM_BLOCKS, most)), needed
