"""Places sequences in the KV cache: growth, prefix reuse, release."""

from __future__ import annotations

from specdec.engine.prefix_cache import PrefixCache
from specdec.engine.sequence import Sequence
from specdec.runner.block_allocator import BlockAllocator
from specdec.runner.kv_cache import KVCache

_MIN_HEADROOM_BLOCKS = 16


class KVManager:
    """Gives each sequence one contiguous run of slots, so that attention reads it without a gather.

    A sequence that outgrows its run extends it in place or moves; a known prefix is copied into the new run, which costs
    memory traffic but no arithmetic.

    Args:
        cache: the target's cache.
        block_size: tokens per block.
        is_prefix_cached: whether prefixes are reused.
    """

    def __init__(self, cache: KVCache, block_size: int, *, is_prefix_cached: bool) -> None:
        self._cache = cache
        self.block_size = block_size
        self._blocks = BlockAllocator(cache.num_slots // block_size)
        self._prefixes = PrefixCache(block_size) if is_prefix_cached else None

    @property
    def num_slots(self) -> int:
        """Slots of the whole cache."""
        return self._blocks.num_blocks * self.block_size

    @property
    def num_free_blocks(self) -> int:
        """Blocks that belong to no sequence."""
        return self._blocks.num_free

    def admit(self, sequence: Sequence, num_slots: int) -> bool:
        """Place a waiting sequence, reusing a known prefix; returns False if there is no room for that and `num_slots` more."""
        blocks: list[int] = []
        key = 0
        if self._prefixes is not None and sequence.params.prompt_logprobs is None:
            blocks, key = self._prefixes.match(sequence.token_ids, sequence.num_tokens - 1)
        # Room for the known prefix as well as for the first piece that runs after it.
        needed = self._blocks_for(min(sequence.num_tokens, len(blocks) * self.block_size + num_slots))
        wanted = min(self._blocks_for(sequence.max_num_tokens + 1), needed + _MIN_HEADROOM_BLOCKS)
        start = self._blocks.allocate(max(wanted, needed))
        if start is None and wanted > needed:
            wanted = needed
            start = self._blocks.allocate(needed)
        if start is None:
            return False
        num_blocks = max(wanted, needed)
        sequence.first_slot = start * self.block_size
        sequence.num_blocks = num_blocks
        usable = self._copy_prefix(blocks, start, num_blocks)
        if self._prefixes is not None:
            self._prefixes.forget(start, num_blocks)
        if usable < len(blocks):
            key = self._key_of(sequence, usable)
        sequence.num_computed = usable * self.block_size
        sequence.num_published = usable
        sequence.prefix_key = key if usable else 0
        sequence.num_cached_prompt_tokens = min(sequence.num_computed, sequence.num_prompt_tokens)
        return True

    def reserve(self, sequence: Sequence, num_slots: int) -> bool:
        """Make room for `num_slots` tokens of a placed sequence, moving it if need be; False if there is no room."""
        missing = self._blocks_for(num_slots) - sequence.num_blocks
        if missing <= 0:
            return True
        start = sequence.first_slot // self.block_size
        end = start + sequence.num_blocks
        for extra in (min(missing + _MIN_HEADROOM_BLOCKS, self._growth_limit(sequence)), missing):
            if extra >= missing and self._blocks.extend(end, extra):
                self._forget(end, extra)
                sequence.num_blocks += extra
                return True
        num_blocks = sequence.num_blocks + missing
        target = self._blocks.allocate(num_blocks)
        if target is None:
            return False
        self._forget(target, num_blocks)
        self._cache.copy(sequence.first_slot, target * self.block_size, sequence.num_computed)
        self._blocks.free(start, sequence.num_blocks)
        sequence.first_slot, sequence.num_blocks = target * self.block_size, num_blocks
        return True

    def publish(self, sequence: Sequence) -> None:
        """Make known the blocks that hold committed, written tokens only."""
        if self._prefixes is None:
            return
        size = self.block_size
        while (sequence.num_published + 1) * size <= sequence.num_computed:
            first = sequence.num_published * size
            tokens = sequence.token_ids[first : first + size]
            block = sequence.first_slot // size + sequence.num_published
            sequence.prefix_key = self._prefixes.publish(sequence.prefix_key, tokens, block)
            sequence.num_published += 1

    def release(self, sequence: Sequence) -> None:
        """Give a sequence's blocks back; published ones stay known until they are overwritten."""
        if sequence.num_blocks:
            self._blocks.free(sequence.first_slot // self.block_size, sequence.num_blocks)
        sequence.num_blocks = 0
        sequence.first_slot = -1
        sequence.num_computed = sequence.num_published = sequence.prefix_key = 0

    def _copy_prefix(self, blocks: list[int], start: int, num_blocks: int) -> int:
        """Copy known blocks into a new run; returns how many. Blocks that an earlier copy overwrote end the prefix."""
        size = self.block_size
        index = 0
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
                self._cache.copy(block * size, (start + index) * size, length * size)
            index += length
        return index

    def _key_of(self, sequence: Sequence, num_blocks: int) -> int:
        assert self._prefixes is not None
        key = 0
        for index in range(num_blocks):
            first = index * self.block_size
            tokens = sequence.token_ids[first : first + self.block_size]
            key = self._prefixes.publish(key, tokens, sequence.first_slot // self.block_size + index)
        return key

    def _forget(self, start: int, num_blocks: int) -> None:
        if self._prefixes is not None:
            self._prefixes.forget(start, num_blocks)

    def _growth_limit(self, sequence: Sequence) -> int:
        return max(0, self._blocks_for(sequence.max_num_tokens + 1) - sequence.num_blocks)

    def _blocks_for(self, num_slots: int) -> int:
        return -(-num_slots // self.block_size)
