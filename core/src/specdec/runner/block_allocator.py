"""Allocates one contiguous run of cache blocks per sequence."""

from __future__ import annotations


class BlockAllocator:
    """Next-fit allocation of contiguous block runs; the most recently freed blocks are reused last.

    Args:
        num_blocks: blocks in the cache.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._used = bytearray(num_blocks)
        self._cursor = 0
        self._num_free = num_blocks

    @property
    def num_free(self) -> int:
        """Number of blocks that belong to no sequence."""
        return self._num_free

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
        self._num_free += num_blocks if value == 0 else -num_blocks
