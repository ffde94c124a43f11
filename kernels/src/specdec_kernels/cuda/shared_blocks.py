"""Blocks of a cache that several requests may hold."""

from __future__ import annotations

import numpy as np

from specdec.engine import BlockAllocator


class SharedBlocks(BlockAllocator):
    """A `BlockAllocator` that counts who holds each block, and frees it when nobody does.

    Args:
        num_blocks: see `BlockAllocator`.
    """

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.num_holders = np.zeros(num_blocks, np.int64)
        """`[num_blocks]`; 0 of free blocks."""
        self.avoided: set[int] = set()
        """First blocks of runs that `allocate` does not return."""

    def hold(self, blocks: range) -> None:
        """Add a holder to consecutive blocks, which may be free."""
        for block in blocks:
            if not self.num_holders[block]:
                self._mark(block, 1, 1)
        self.num_holders[blocks.start : blocks.stop] += 1

    def allocate(self, num_blocks: int) -> int | None:
        """Allocate a run of blocks; return its first block, or None if no free run is long enough."""
        wanted = bytes(num_blocks)
        for begin in (self._cursor, 0):
            start = self._used.find(wanted, begin)
            while start >= 0 and start in self.avoided:
                start = self._used.find(wanted, start + 1)
            if start >= 0:
                self.hold(range(start, start + num_blocks))
                self._cursor = start + num_blocks
                return start
        return None

    def extend(self, end: int, num_blocks: int) -> bool:
        """Allocate the blocks just behind a run, if all are free; return whether they were."""
        is_free = super().extend(end, num_blocks)
        self.num_holders[end : end + num_blocks] += is_free
        return is_free

    def free(self, start: int, num_blocks: int) -> None:
        """Take a holder from consecutive blocks."""
        holders = self.num_holders[start : start + num_blocks]
        assert (holders > 0).all(), "a block is freed that nobody holds"
        holders -= 1
        for block in start + np.flatnonzero(holders == 0):
            self._mark(int(block), 1, 0)
