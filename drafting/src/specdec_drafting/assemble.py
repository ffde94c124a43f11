"""Assembles a `Draft` from sketches."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec.interfaces import Draft, DraftSampling
from specdec_drafting.sketch import Sketch


def draft_of(
    sketches: Sequence[Sketch | None],
    device: torch.device,
    *,
    is_tree: bool,
    has_confidence: bool,
    vocab_map: torch.Tensor | None = None,
) -> Draft:
    """Return the draft of a batch.

    Args:
        sketches: `[B]` one for each row, None for rows without a draft.
        device: device of q; token ids stay on the host, where core reads them.
        is_tree: whether the draft has parents.
        has_confidence: whether it has the nodes' probabilities.
        vocab_map: `[V']` the target's id of each draft id, or None if they are the same.
    """
    rows = [[] if s is None else s.token_ids for s in sketches]
    if not any(rows):
        return Draft.empty(len(rows))
    draft = Draft.from_lists(
        rows,
        [[] if s is None else s.parents for s in sketches] if is_tree else None,
        confidence=[[] if s is None else s.confidence for s in sketches] if has_confidence else None,
    )
    has_laws = [s is not None and bool(s.laws) for s in sketches]
    if not any(has_laws):
        return draft
    return Draft(
        token_ids=draft.token_ids,
        parents=draft.parents,
        sampling=DraftSampling.WITHOUT_REPLACEMENT if is_tree else DraftSampling.IID,
        node_probs=_laws(draft, sketches, device),
        has_probs=torch.tensor(has_laws, device=device),
        vocab_map=vocab_map,
        confidence=draft.confidence,
    )


def _laws(draft: Draft, sketches: Sequence[Sketch | None], device: torch.device) -> torch.Tensor:
    """Return `node_probs [B, N + 1, V']`; rows from which no child was drawn are uniform."""
    width = next(law.shape[0] for s in sketches if s is not None for law in s.laws.values())
    num_rows, num_nodes = draft.token_ids.shape
    probs = torch.full((num_rows, num_nodes + 1, width), 1.0 / width, device=device)
    for row, sketch in enumerate(sketches):
        for node, law in (sketch.laws if sketch is not None else {}).items():
            probs[row, node] = law
    return probs
