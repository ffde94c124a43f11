"""Where the target and the proposer continue after a prefix cache hit."""

from __future__ import annotations

from specdec.engine.delivery import Delivery
from specdec.engine.guard import ProposerGuard
from specdec.engine.sequence import Sequence


class Resumption:
    """Asks the proposer how much of a cached prefix it holds; delivery begins after that.

    A proposer that reads hidden states needs those of every token that it does not hold, so the target
    recomputes the rows that predict these tokens: always the last row that both hold, and more if the
    proposer holds less. Other proposers need no recomputation.

    Args:
        guard: the proposer.
        delivery: delivers the remaining tokens.
    """

    def __init__(self, guard: ProposerGuard, delivery: Delivery) -> None:
        self._guard = guard
        self._delivery = delivery

    def __call__(self, sequence: Sequence, num_known: int) -> int:
        """Return how many of a placed sequence's `num_known` cached rows need not run; see `Resume`."""
        if not self._delivery.needs_hidden:
            # A preempted sequence is introduced already: the proposer still has its own state.
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
