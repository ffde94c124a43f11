"""Gives every sequence one contiguous run of cache blocks."""

from __future__ import annotations


class BlockAllocator:
    """First-fit allocation of contiguous block runs, going round, so that what was freed last is reused last.

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
        """Blocks that belong to no sequence."""
        return self._num_free

    def allocate(self, num_blocks: int) -> int | None:
        """Take a run of blocks; return its first block, or None if no run is long enough."""
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
        """Take the `num_blocks` blocks that follow a run ending before block `end`, if all are free."""
        if end + num_blocks > self.num_blocks or any(self._used[end : end + num_blocks]):
            return False
        self._mark(end, num_blocks, 1)
        # Otherwise the next run would lie over this one's newest blocks once it is freed.
        if end <= self._cursor < end + num_blocks:
            self._cursor = end + num_blocks
        return True

    def free(self, start: int, num_blocks: int) -> None:
        """Give a run back."""
        self._mark(start, num_blocks, 0)

    def _mark(self, start: int, num_blocks: int, value: int) -> None:
        assert all(used != value for used in self._used[start : start + num_blocks])
        self._used[start : start + num_blocks] = bytes([value]) * num_blocks
        self._num_free += num_blocks if value == 0 else -num_blocks
