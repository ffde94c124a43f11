"""A proposer whose drafts are hardly ever accepted: what verifying costs, without what it brings."""

from __future__ import annotations

from typing import ClassVar

from specdec import Draft, ProposeBatch, Proposer


class WrongDrafts(Proposer):
    """Drafts as many tokens as it may, each the last committed one: text seldom says a token twice in a row."""

    name: ClassVar[str] = "wrong_drafts"

    def propose(self, batch: ProposeBatch) -> Draft:
        """Draft one token again and again."""
        return Draft.from_lists(
            [[int(batch.token_ids(row)[-1])] * count for row, count in enumerate(batch.max_nodes)]
        )
