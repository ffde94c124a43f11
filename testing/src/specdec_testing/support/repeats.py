"""A draft that any proposer can make."""

from __future__ import annotations

from specdec import Draft, ProposeBatch


def repeats(batch: ProposeBatch) -> Draft:
    """Return, for each row, what followed the newest token when it last occurred."""
    drafts = []
    for row, most in enumerate(batch.max_nodes):
        ids = batch.token_ids(row)
        earlier = (ids[:-1] == ids[-1]).nonzero()[0]
        start = earlier[-1] + 1 if len(earlier) else len(ids)
        drafts.append(ids[start : start + most].tolist())
    return Draft.from_lists(drafts)
