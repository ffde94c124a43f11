"""Finds cached blocks that a new request can reuse."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec.interfaces.score_batch import SlotCache

Ids = npt.NDArray[np.int32] | npt.NDArray[np.int64]
"""`[n]`, or `[n, m]` where each is told by several numbers."""


class PrefixCache:
    """Maps block content to blocks; the key is the preceding prefix and the block's tokens, compared exactly.

    Args:
        block_size: tokens per block.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._blocks: dict[tuple[int, bytes], tuple[int, int]] = {}
        self._content_of_block: dict[int, tuple[int, bytes]] = {}
        self._next_key = 1

    def match(self, token_ids: Ids) -> list[int]:
        """Return the blocks of the longest cached prefix."""
        blocks, key = list[int](), 0
        for start in range(0, len(token_ids) - self.block_size + 1, self.block_size):
            found = self._blocks.get((key, token_ids[start : start + self.block_size].tobytes()))
            if found is None:
                break
            block, key = found
            blocks.append(block)
        return blocks

    def key_of(self, block: int) -> int:
        """Return the key of the prefix that ends with a registered block."""
        return self._blocks[self._content_of_block[block]][1]

    def take_over(self, cache: SlotCache, blocks: list[int], start: int, num_blocks: int) -> list[int]:
        """Move cached blocks to the beginning of a new run, which is overwritten last, and forget what else was cached there.

        Args:
            cache: the cache whose rows are copied.
            blocks: the result of `match`, or its end.
            start: first block of the run, which may overlap `blocks`: the first one that copying has overwritten ends them.
            num_blocks: number of blocks of the run.

        Returns:
            for each reused block, the key of the prefix that ends with it.
        """
        taken = [self._content_of_block[block] for block in blocks]
        keys = [self.key_of(block) for block in blocks]
        count = self._copy(cache, blocks, start, num_blocks)
        for block in blocks[:count]:
            del self._content_of_block[block]
        self.forget(start, num_blocks)
        for index, content in enumerate(taken[:count]):
            self._blocks[content] = start + index, keys[index]
            self._content_of_block[start + index] = content
        return keys[:count]

    def publish(self, parent_key: int, token_ids: Ids, block: int) -> int:
        """Register a written block; returns the key of the prefix that ends with it.

        Args:
            parent_key: key of the prefix before the block; 0 for the first block.
            token_ids: the block's tokens, `block_size` of them.
            block: index of the block. If the same content is already registered, the older block is kept.
        """
        content = (parent_key, token_ids.tobytes())
        known = self._blocks.get(content)
        if known is not None:
            return known[1]
        key = self._next_key
        self._next_key += 1
        self._blocks[content] = (block, key)
        self._content_of_block[block] = content
        return key

    def move(self, start: int, destination: int, num_blocks: int) -> None:
        """Record that a run's first blocks have been copied to other blocks, which may overlap them.

        Destination blocks outside the run must not be registered.
        """
        order = range(num_blocks) if destination < start else reversed(range(num_blocks))
        for index in order:
            content = self._content_of_block.pop(start + index, None)
            if content is not None:
                self._blocks[content] = destination + index, self._blocks[content][1]
                self._content_of_block[destination + index] = content

    def clear(self) -> None:
        """Forget all blocks."""
        self._blocks.clear()
        self._content_of_block.clear()

    def forget(self, start: int, num_blocks: int) -> None:
        """Unregister blocks that are about to be overwritten."""
        if not self._content_of_block:
            return
        for block in range(start, start + num_blocks):
            content = self._content_of_block.pop(block, None)
            if content is not None:
                del self._blocks[content]

    def _copy(self, cache: SlotCache, blocks: list[int], start: int, num_blocks: int) -> int:
        """Copy cached blocks into a new run; returns how many. A block that an earlier copy overwrote ends the prefix."""
        size, index = self.block_size, 0
        while index < len(blocks):
            block = blocks[index]
            is_inside = start <= block < start + num_blocks
            if is_inside and block < start + index:
                break
            length = 1
            if not is_inside:
                while index + length < len(blocks) and blocks[index + length] == block + length != start:
                    length += 1
            if block != start + index:
                cache.copy(block * size, (start + index) * size, length * size)
            index += length
        return index
