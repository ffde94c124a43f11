"""Places sequences in the KV cache: growth, prefix reuse, release."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from hashlib import blake2b

import numpy as np

from specdec.engine.prefix_cache import Ids
from specdec.engine.sequence import Sequence
from specdec.engine.slot_pool import SlotPool
from specdec.interfaces.layer_states import LayerStates
from specdec.interfaces.score_batch import SlotCache

_LEAST_PENDING = {"cpu": 64, "cuda": 256}
"""Rows that a device computes in the time in which it reads the weights, so that one more step for so many costs nothing."""


class KVManager:
    """Gives sequences slots of the target's cache; see `SlotPool`.

    Args:
        cache: the target's cache.
        block_size: tokens per block.
        is_prefix_cached: whether prefixes are reused.
        resume: returns how many of a placed sequence's cached rows, of which it is given the number, need not run; None: all.
        states: states of layers that keep no keys and values: cached prefixes end where one is kept; None without.
        make_pool: makes what places them; see `Scorer.slot_pool`.
    """

    def __init__(
        self,
        cache: SlotCache,
        block_size: int,
        *,
        is_prefix_cached: bool,
        resume: Callable[[Sequence, int], int] | None = None,
        states: LayerStates | None = None,
        make_pool: type[SlotPool] | None = None,
    ) -> None:
        # Headroom is not reclaimed: a proposer's cache has as many slots, and rows of drafts besides, so it is full before.
        self.pool = (make_pool or SlotPool)(cache, block_size * is_prefix_cached, block_size=block_size)
        self._block_size = block_size
        self._resume, self._states = resume, states
        self._least_pending = _LEAST_PENDING.get(cache.device.type, _LEAST_PENDING["cuda"])
        self._waits = is_prefix_cached and states is None
        self._key = secrets.token_bytes(16)

    def has_pending_prefix(self, sequence: Sequence, running: Iterable[Sequence]) -> bool:
        """Return whether one of others will compute so much of a sequence's prefix that it runs sooner if it waits for it."""
        if not self._waits or sequence.prompt_logprobs is not None:
            return False
        return any(
            (size := other.num_computed + self._least_pending)
            < min(sequence.num_tokens, other.num_tokens + 1)
            and other.cache_salt == sequence.cache_salt
            and other.prompt_logprobs is None  # else it runs what may be cached, in small pieces
            and np.array_equal(sequence.token_ids[:size], other.token_ids[:size])
            for other in running
        )

    def admit(self, sequence: Sequence, num_slots: int) -> bool:
        """Place a sequence, reusing a cached prefix; False if that and `num_slots` more do not fit."""
        is_reused, num_rows = sequence.prompt_logprobs is None, sequence.num_tokens
        ids = self._salted(sequence, num_rows - 1 if is_reused else 0)  # the last token must run
        most = sequence.max_num_tokens + 1
        num_known = self.pool.place(sequence, ids, num_rows=num_rows, num_new=num_slots, most_slots=most)
        if num_known is None:
            return False
        if sequence.admission_time is None:  # a preempted one would hit what it computed itself
            sequence.num_cached_prompt_tokens = min(num_known, sequence.num_prompt_tokens)
        return self._begin(sequence, num_known)

    def rerun(self, sequence: Sequence) -> bool:
        """Compute rows of a running sequence again, as many as its proposer needs; False, and no place, without room."""
        return self._begin(sequence, sequence.num_computed)

    def has_room_to_rerun(self, sequence: Sequence) -> bool:
        """Return whether there is room for own rows of a sequence in place of those that it shares."""
        return self.pool.num_shared_slots(sequence) <= self.pool.num_free_slots

    def _begin(self, sequence: Sequence, num_known: int) -> bool:
        """Begin a placed sequence after those of its `num_known` rows that need not run; False, and no place, without room."""
        if self._resume is not None:
            num_known = self._resume(sequence, num_known)
        if self._states is not None:
            num_rows = self._states.resume(sequence, self.pool.first_slot(sequence), num_known)
            if num_rows < num_known and sequence.admission_time is None:
                sequence.num_cached_prompt_tokens = num_rows
            num_known = num_rows
        if not self.pool.rewrite_from(sequence, num_known):
            self.release(sequence)
            return False
        sequence.first_slot, sequence.num_computed = self.pool.first_slot(sequence), num_known
        sequence.num_slots = sequence.num_published = 0
        return True

    def reserve(self, sequence: Sequence, num_slots: int, num_kept: int) -> bool:
        """Make room for `num_slots` tokens of a sequence, moving its `num_kept` rows if necessary; False if there is none."""
        if num_slots <= sequence.num_slots:
            return True  # as in most steps: the last draft was rejected, or its block has room
        if not self.pool.reserve(sequence, num_slots, num_kept):
            return False
        sequence.first_slot = self.pool.first_slot(sequence)
        sequence.num_slots = -(-num_slots // self._block_size) * self._block_size
        return True

    def publish(self, sequence: Sequence) -> None:
        """Publish the full blocks of committed, computed tokens to the prefix cache."""
        num_blocks = sequence.num_computed // self._block_size
        if num_blocks > sequence.num_published:
            self.pool.publish(sequence, self._salted(sequence, sequence.num_computed))
            sequence.num_published = num_blocks

    def _salted(self, sequence: Sequence, count: int) -> Ids:
        """Return what tells the first tokens of a sequence from those of others: their ids, beside a hash of its salt."""
        ids = sequence.token_ids[:count]
        if not sequence.cache_salt:
            return ids
        salt = np.frombuffer(
            blake2b(sequence.cache_salt.encode(), key=self._key, digest_size=16).digest(), np.int64
        )
        return np.column_stack([ids.astype(np.int64), np.broadcast_to(salt, (count, 2))])

    def release(self, sequence: Sequence) -> None:
        """Free a sequence's slots; published rows stay in the prefix cache until they are overwritten."""
        self.pool.release(sequence)
        if self._states is not None:
            self._states.release(sequence)
        sequence.first_slot, sequence.num_computed = -1, 0
        sequence.num_slots = sequence.num_published = 0
