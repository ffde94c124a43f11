"""A proposer whose drafts are almost never accepted; measures the cost of verification without its gain."""

from __future__ import annotations

from typing import ClassVar

from specdec import Draft, ProposeBatch, Proposer


class WrongDrafts(Proposer):
    """Drafts the maximum number of tokens, all equal to the last committed one, since text rarely repeats a token."""

    name: ClassVar[str] = "wrong_drafts"

    def propose(self, batch: ProposeBatch) -> Draft:
        """Draft copies of the last committed token."""
        return Draft.from_lists(
            [[int(batch.token_ids(row)[-1])] * count for row, count in enumerate(batch.max_nodes)]
        )
