"""Places sequences in the KV cache: growth, prefix reuse, release."""

from __future__ import annotations

from collections.abc import Callable

from specdec.engine.sequence import Sequence
from specdec.interfaces.layer_states import LayerStates
from specdec.interfaces.score_batch import SlotCache
from specdec.runner.slot_pool import SlotPool

Resume = Callable[[Sequence, int], int]
"""Takes a sequence that is being placed and its number of cached rows; returns how many of them need not
run."""


class KVManager:
    """Gives each sequence one contiguous run of slots, which attention reads without a gather; see `SlotPool`.

    A cached prefix is copied into the new run, which costs memory traffic but no computation.

    Args:
        cache: the target's cache.
        block_size: tokens per block.
        is_prefix_cached: whether prefixes are reused.
        resume: called for each sequence that is placed; None keeps all cached rows.
        states: states of layers that keep no keys and values: cached prefixes end where one is kept; None without.
    """

    def __init__(
        self,
        cache: SlotCache,
        block_size: int,
        *,
        is_prefix_cached: bool,
        resume: Resume | None = None,
        states: LayerStates | None = None,
    ) -> None:
        # Headroom is not reclaimed: a proposer's cache has as many slots, and rows of drafts besides, so it is full before.
        self._pool = SlotPool(cache, block_size if is_prefix_cached else 0, block_size=block_size)
        self._resume = resume
        self._states = states

    @property
    def num_slots(self) -> int:
        """Number of slots of the whole cache."""
        return self._pool.num_slots

    @property
    def num_free_slots(self) -> int:
        """Number of slots that belong to no sequence."""
        return self._pool.num_free_slots

    def admit(self, sequence: Sequence, num_slots: int) -> bool:
        """Place a sequence, reusing a cached prefix; False if that and `num_slots` more do not fit."""
        is_reused = sequence.prompt_logprobs is None
        ids = sequence.token_ids[: sequence.num_tokens - 1 if is_reused else 0]  # the last token must run
        num_known = self._pool.place(
            sequence,
            ids,
            num_rows=sequence.num_tokens,
            num_new=num_slots,
            most_slots=sequence.max_num_tokens + 1,
        )
        if num_known is None:
            return False
        sequence.first_slot = self._pool.first_slot(sequence)
        if sequence.admission_time is None:  # a preempted one would hit what it computed itself
            sequence.num_cached_prompt_tokens = min(num_known, sequence.num_prompt_tokens)
        if self._resume is not None:
            num_known = self._resume(sequence, num_known)
        sequence.num_computed = (
            num_known if self._states is None else self._resume_states(sequence, num_known)
        )
        self._pool.rewrite_from(sequence, sequence.num_computed)
        return True

    def reserve(self, sequence: Sequence, num_slots: int) -> bool:
        """Make room for `num_slots` tokens of a sequence, moving it if necessary; False if there is none."""
        if not self._pool.reserve(sequence, num_slots, sequence.num_computed):
            return False
        sequence.first_slot = self._pool.first_slot(sequence)
        return True

    def publish(self, sequence: Sequence) -> None:
        """Publish the full blocks of committed, computed tokens to the prefix cache."""
        self._pool.publish(sequence, sequence.token_ids[: sequence.num_computed])

    def release(self, sequence: Sequence) -> None:
        """Free a sequence's slots; published rows stay in the prefix cache until they are overwritten."""
        self._pool.release(sequence)
        if self._states is not None:
            self._states.release(sequence)
        sequence.first_slot, sequence.num_computed = -1, 0

    def _resume_states(self, sequence: Sequence, num_known: int) -> int:
        """Return how many of a placed sequence's `num_known` cached rows are before a state that is kept."""
        assert self._states is not None
        num_rows = self._states.resume(sequence, sequence.first_slot, num_known)
        if num_rows < num_known and sequence.admission_time is None:
            sequence.num_cached_prompt_tokens = num_rows
        return num_rows
