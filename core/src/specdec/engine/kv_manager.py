"""Places sequences in the KV cache: growth, prefix reuse, release."""

from __future__ import annotations

from collections.abc import Callable

from specdec.engine.sequence import Sequence
from specdec.interfaces.score_batch import SlotCache
from specdec.runner.block_allocator import BlockAllocator
from specdec.runner.prefix_cache import PrefixCache

_MIN_HEADROOM_BLOCKS = 16

Resume = Callable[[Sequence, int], int]
"""Takes a sequence that is being placed and its number of cached rows; returns how many of them need not
run."""


class KVManager:
    """Gives each sequence one contiguous run of slots, which attention reads without a gather.

    A sequence that outgrows its run extends it in place or moves. A cached prefix is copied into the new run,
    which costs memory traffic but no computation.

    Args:
        cache: the target's cache.
        block_size: tokens per block.
        is_prefix_cached: whether prefixes are reused.
        resume: called for each sequence that is placed; None keeps all cached rows.
    """

    def __init__(
        self, cache: SlotCache, block_size: int, *, is_prefix_cached: bool, resume: Resume | None = None
    ) -> None:
        self._cache = cache
        self._resume = resume
        self.block_size = block_size
        self._blocks = BlockAllocator(cache.num_slots // block_size)
        self._prefixes = PrefixCache(block_size) if is_prefix_cached else None

    @property
    def num_slots(self) -> int:
        """Number of slots of the whole cache."""
        return self._blocks.num_blocks * self.block_size

    @property
    def num_free_blocks(self) -> int:
        """Number of blocks that belong to no sequence."""
        return self._blocks.num_free

    def admit(self, sequence: Sequence, num_slots: int) -> bool:
        """Place a sequence, reusing a cached prefix; False if that and `num_slots` more do not fit."""
        blocks: list[int] = []
        if self._prefixes is not None and sequence.prompt_logprobs is None:
            blocks = self._prefixes.match(sequence.token_ids, sequence.num_tokens - 1)
        # Room for the cached prefix and for the first chunk after it.
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
        keys: list[int] = []
        if self._prefixes is not None:
            keys = self._prefixes.take_over(self._cache, blocks, start, num_blocks)
        num_known = len(keys) * self.block_size
        if sequence.admission_time is None:  # a preempted one would hit what it computed itself
            sequence.num_cached_prompt_tokens = min(num_known, sequence.num_prompt_tokens)
        sequence.num_computed = num_known if self._resume is None else self._resume(sequence, num_known)
        sequence.num_published = sequence.num_computed // self.block_size
        sequence.prefix_key = keys[sequence.num_published - 1] if sequence.num_published else 0
        return True

    def reserve(self, sequence: Sequence, num_slots: int) -> bool:
        """Make room for `num_slots` tokens of a sequence, moving it if necessary; False if there is none."""
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
        if self._prefixes is not None:
            self._prefixes.move(start, target, sequence.num_published)
        self._blocks.free(start, sequence.num_blocks)
        sequence.first_slot, sequence.num_blocks = target * self.block_size, num_blocks
        return True

    def publish(self, sequence: Sequence) -> None:
        """Publish the full blocks of committed, computed tokens to the prefix cache."""
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
        """Free a sequence's blocks; published ones stay in the prefix cache until they are overwritten."""
        if sequence.num_blocks:
            self._blocks.free(sequence.first_slot // self.block_size, sequence.num_blocks)
        sequence.num_blocks = 0
        sequence.first_slot = -1
        sequence.num_computed = sequence.num_published = sequence.prefix_key = 0

    def _forget(self, start: int, num_blocks: int) -> None:
        if self._prefixes is not None:
            self._prefixes.forget(start, num_blocks)

    def _growth_limit(self, sequence: Sequence) -> int:
        return max(0, self._blocks_for(sequence.max_num_tokens + 1) - sequence.num_blocks)

    def _blocks_for(self, num_slots: int) -> int:
        return -(-num_slots // self.block_size)
