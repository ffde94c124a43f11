"""Drafts as core passes them on."""

from __future__ import annotations

from specdec.engine import check_draft
from specdec.interfaces import CheckedDraft, Draft


def checked_draft(draft: Draft, vocab_size: int) -> CheckedDraft:
    """Return a draft as scorers and samplers get it: by core's own check, without a limit on its nodes."""
    num_rows, most = draft.token_ids.shape
    return check_draft(draft, [most] * num_rows, vocab_size)[0]
