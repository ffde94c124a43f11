"""Where the target and the proposer go on from a prefix that is in the cache."""

from __future__ import annotations

from specdec.engine.delivery import Delivery
from specdec.engine.guard import ProposerGuard
from specdec.engine.sequence import Sequence


class Resumption:
    """Asks the proposer how much of a cached prefix it holds; delivery begins behind that.

    A proposer that reads hidden states gets those of every token that it does not hold, so the target runs the rows that choose
    these again: always the last one of what both hold, and more where the proposer holds less. Other proposers limit nothing.

    Args:
        guard: the proposer.
        delivery: what tells it the rest.
    """

    def __init__(self, guard: ProposerGuard, delivery: Delivery) -> None:
        self._guard = guard
        self._delivery = delivery

    def __call__(self, sequence: Sequence, num_known: int) -> int:
        """Return how many of the `num_known` first rows of a sequence that is being placed need not run; see `Resume`."""
        if not self._delivery.needs_hidden:
            # One that was preempted: the proposer, whose state is its own, still has what it was given.
            if num_known and not sequence.is_introduced:
                sequence.delivered = self._held(sequence, num_known)
            return num_known
        self._delivery.forget(sequence)
        if not num_known or not sequence.has_proposals:
            return num_known
        if self._guard.is_paused:
            self._delivery.give_up(
                sequence, "was left out when a cached prefix would have had to be computed again for it"
            )
            return num_known
        held = self._held(sequence, num_known)
        sequence.delivered = held
        if sequence.admission_time is None:
            sequence.num_cached_prompt_tokens = min(held, sequence.num_prompt_tokens)
        if held < num_known:
            self._guard.note_missing(num_known - held, num_known)
            sequence.num_missing = num_known if self._guard.can_resume else 0
        return max(0, held - 1)

    def _held(self, sequence: Sequence, num_known: int) -> int:
        held = self._guard.resume(sequence.row_id, sequence.token_ids[:num_known])
        sequence.is_introduced = sequence.is_introduced or held > 0
        return held
