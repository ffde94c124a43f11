"""Finds blocks whose content a new request can reuse."""

from __future__ import annotations

from specdec.interfaces.batch import HostIds


class PrefixCache:
    """Blocks by content: a block is known by the block before it and its own tokens, compared exactly, never by hash alone.

    Args:
        block_size: tokens per block.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._blocks: dict[tuple[int, bytes], tuple[int, int]] = {}
        self._keys_of_block: dict[int, tuple[int, bytes]] = {}
        self._next_key = 1

    def match(self, token_ids: HostIds, max_tokens: int) -> tuple[list[int], int]:
        """Return the blocks that hold the longest known prefix of at most `max_tokens` tokens, and its key."""
        blocks: list[int] = []
        key = 0
        for start in range(0, max_tokens - self.block_size + 1, self.block_size):
            found = self._blocks.get((key, token_ids[start : start + self.block_size].tobytes()))
            if found is None:
                break
            block, key = found
            blocks.append(block)
        return blocks, key

    def publish(self, parent_key: int, token_ids: HostIds, block: int) -> int:
        """Make a written block known; returns the key of the prefix that ends with it.

        Args:
            parent_key: key of the prefix before the block; 0 for the first one.
            token_ids: the block's tokens, `block_size` of them.
            block: where they lie. A block that is known already keeps its older place.
        """
        content = (parent_key, token_ids.tobytes())
        known = self._blocks.get(content)
        if known is not None:
            return known[1]
        key = self._next_key
        self._next_key += 1
        self._blocks[content] = (block, key)
        self._keys_of_block[block] = content
        return key

    def forget(self, start: int, num_blocks: int) -> None:
        """Forget blocks that are about to be overwritten."""
        if not self._keys_of_block:
            return
        for block in range(start, start + num_blocks):
            content = self._keys_of_block.pop(block, None)
            if content is not None:
                del self._blocks[content]
