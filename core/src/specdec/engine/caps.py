"""Limits on the number of nodes drafted for a request in one step."""

from __future__ import annotations

from collections.abc import Callable

from specdec.engine.sequence import Sequence


class SpeculationCaps:
    """The configuration's limits on drafting.

    Args:
        num_speculative_tokens: k; 0 means no speculation.
        by_batch_size: returns the limit at a batch size (`disable_by_batch_size`,
            `num_speculative_tokens_per_batch_size`).
        needs_hidden: whether tokens reach the proposer with hidden states, so only after the pass that
            computes these.
    """

    def __init__(
        self,
        num_speculative_tokens: int,
        by_batch_size: Callable[[int], int] | None = None,
        *,
        needs_hidden: bool = False,
    ) -> None:
        self.num_speculative_tokens = num_speculative_tokens
        self._by_batch_size = by_batch_size
        self._needs_hidden = needs_hidden

    def of_batch(self, batch_size: int) -> int:
        """Return the limit for every request of a batch."""
        if self._by_batch_size is None:
            return self.num_speculative_tokens
        return min(self.num_speculative_tokens, self._by_batch_size(batch_size))

    def of_sequence(self, sequence: Sequence, batch_limit: int) -> int:
        """Return the limit for one request: a draft must fit its output limit and the context window."""
        if batch_limit == 0 or not sequence.has_proposals:
            return 0
        if self._needs_hidden and sequence.num_with_states < sequence.num_tokens:
            return 0  # last prompt chunk: this pass computes its states, and a draft without them is stale
        room = sequence.max_num_tokens - sequence.num_tokens - 1
        return max(0, min(sequence.params.cap_speculation(batch_limit), room))
