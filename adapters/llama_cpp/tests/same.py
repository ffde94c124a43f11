"""A proposer that drafts the same every time."""

from __future__ import annotations

from specdec.interfaces import Draft, ProposeBatch, Proposer


class Same(Proposer):
    name = "same"

    def propose(self, batch: ProposeBatch) -> Draft:
        return Draft.from_lists([[7, 8, 9]] * batch.batch_size)
