"""Well-formed drafts as core would pass them on."""

from __future__ import annotations

from specdec.interfaces import CheckedDraft, Draft, DrawnNodes


def checked_draft(draft: Draft, vocab_size: int) -> CheckedDraft:
    """Return a well-formed draft as scorers and samplers get it."""
    rows = draft.rows
    drawn = None
    if draft.node_probs is not None:
        drawn = DrawnNodes(
            draft.token_ids, draft.node_probs, draft.sampling, draft.has_probs, draft.vocab_map
        )
    parents = draft.parents
    return CheckedDraft(
        rows=tuple(tuple(token if token < vocab_size else 0 for token in row) for row in rows),
        parents=None
        if parents is None
        else tuple(tuple(links[: len(row)]) for links, row in zip(parents.tolist(), rows, strict=True)),
        drawn=drawn,
        proposers=draft.proposers,
    )
