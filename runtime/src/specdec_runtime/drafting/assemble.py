"""Assembles the `Draft` of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.interfaces import Draft, DraftSampling
from specdec_runtime.drafting.drafting_config import DraftingConfig
from specdec_runtime.drafting.partial_draft import PartialDraft, UnreadNodes


def draft_of(
    drafts: Sequence[PartialDraft | None],
    config: DraftingConfig,
    device: torch.device,
    vocab_map: torch.Tensor | None,
) -> Draft:
    """Return the draft of a batch.

    Args:
        drafts: `[B]` one for each row, None for rows without a draft.
        config: whether the draft has parents and confidences.
        device: device of q; token ids that the host has read stay there.
        vocab_map: `[V']` the target's id of each draft id, or None if they are the same.
    """
    unread = [None if d is None else d.unread for d in drafts]
    if any(unread):
        return _unread_draft(unread, vocab_map)
    rows = [[] if d is None else d.token_ids for d in drafts]
    if not any(rows):
        return Draft.empty(len(rows))
    draft = Draft.from_lists(
        rows,
        [[] if d is None else d.parents for d in drafts] if config.is_tree else None,
        confidence=[[] if d is None else d.confidences for d in drafts] if config.has_confidence else None,
    )
    has_probs = [d is not None and bool(d.draft_probs) for d in drafts]
    if not any(has_probs):
        return draft
    return Draft(
        token_ids=draft.token_ids,
        parents=draft.parents,
        sampling=DraftSampling.WITHOUT_REPLACEMENT if config.is_tree else DraftSampling.IID,
        node_probs=_node_probs(draft, drafts, device),
        has_probs=torch.tensor(has_probs),
        vocab_map=vocab_map,
        confidence=draft.confidence,
    )


def _unread_draft(drafts: Sequence[UnreadNodes | None], vocab_map: torch.Tensor | None) -> Draft:
    """Return the draft of nodes that the host has not read, all made by one call."""
    made = next(draft.made for draft in drafts if draft is not None)
    is_in_order = all(draft is None or draft.place == row for row, draft in enumerate(drafts))
    is_in_order = is_in_order and len(drafts) <= len(made.token_ids)

    def ordered(rows: torch.Tensor) -> torch.Tensor:
        if is_in_order:
            return rows[: len(drafts)]
        return torch.stack([rows[0 if draft is None else draft.place] for draft in drafts])

    is_tree = made.parents is not None
    has_probs = [draft is not None and draft.is_drawn for draft in drafts]
    is_drawn = any(has_probs)
    return Draft(
        ordered(made.token_ids),
        None if made.parents is None else ordered(made.parents),
        sampling=DraftSampling.IID if is_drawn else DraftSampling.DETERMINISTIC,
        node_probs=ordered(made.draft_probs) if is_drawn else None,
        has_probs=torch.tensor(has_probs) if is_drawn else None,
        vocab_map=vocab_map if is_drawn else None,
        confidence=ordered(made.confidences) if is_tree and made.confidences.numel() else None,
        num_nodes=tuple(0 if draft is None else draft.num_nodes for draft in drafts),
    )


def _node_probs(draft: Draft, drafts: Sequence[PartialDraft | None], device: torch.device) -> torch.Tensor:
    """Return `node_probs [B, N + 1, V']`; rows from which no child was drawn are uniform."""
    width = next(probs.shape[0] for d in drafts if d is not None for probs in d.draft_probs.values())
    num_rows, num_nodes = draft.token_ids.shape
    node_probs = torch.full((num_rows, num_nodes + 1, width), 1.0 / width, device=device)
    for row, partial in enumerate(drafts):
        for node, probs in (partial.draft_probs if partial is not None else {}).items():
            node_probs[row, node] = probs
    return node_probs
