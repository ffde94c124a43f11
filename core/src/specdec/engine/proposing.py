"""One call of the proposer, and the finish reasons that it receives."""

from __future__ import annotations

from specdec.engine.delivery import Delivery
from specdec.engine.guard import ProposerGuard
from specdec.engine.sequence import Sequence
from specdec.interfaces.draft import CheckedDraft
from specdec.interfaces.finish import FinishReason


def propose(
    guard: ProposerGuard, delivery: Delivery, sequences: list[Sequence], max_nodes: list[int]
) -> CheckedDraft | None:
    """Deliver new tokens to the proposer and return its draft, or None if it failed.

    After a failure its state is dropped and everything is delivered again. Sequences whose hidden states are
    gone cannot be delivered again and get no further drafts.
    """
    draft = guard.propose(delivery.build(sequences, max_nodes), max_nodes)
    if draft is None:
        guard.finish([sequence.row_id for sequence in sequences], FinishReason.ERROR)
        for sequence in sequences:
            sequence.is_introduced = False
            if delivery.needs_hidden and sequence.delivered:
                delivery.give_up(sequence, "failed, and would have to be told everything again")
            delivery.forget(sequence)
    return draft


def by_reason(ended: list[Sequence]) -> dict[FinishReason, list[Sequence]]:
    """Group ended sequences by the reason given to the proposer: ERROR if last tokens were not delivered."""
    groups: dict[FinishReason, list[Sequence]] = {}
    for sequence in ended:
        assert sequence.finish_reason is not None
        is_complete = sequence.delivered == sequence.num_tokens
        groups.setdefault(sequence.finish_reason if is_complete else FinishReason.ERROR, []).append(sequence)
    return groups
