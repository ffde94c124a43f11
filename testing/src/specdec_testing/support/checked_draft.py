"""Drafts as core passes them on, and verifies them."""

from __future__ import annotations

from dataclasses import replace

from specdec.engine import check_draft
from specdec.interfaces import CheckedDraft, Draft, VerifyBatch


def checked_draft(draft: Draft, vocab_size: int) -> CheckedDraft:
    """Return a draft as core scores it: by core's own check, without a limit on its nodes."""
    num_rows, most = draft.token_ids.shape
    return check_draft(draft, [most] * num_rows, vocab_size)[0]


def with_draft(batch: VerifyBatch, draft: CheckedDraft) -> VerifyBatch:
    """Return a batch whose requests have the drafts of the rows of `draft` to verify."""
    there = draft.device_nodes
    return replace(
        batch, nodes=draft.rows, parents=draft.parents, drawn=draft.drawn, device_nodes=there, transfer=None
    )
