"""The draft of one request while it grows, and the `Draft` of a batch made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from specdec.interfaces import Draft, DraftSampling
from specdec_runtime.drafting.drafting_config import DraftingConfig
from specdec_runtime.interfaces.chain import Chains


class UnreadNodes(NamedTuple):
    """Nodes that are on a device and that the host has not read."""

    made: Chains
    """Those of several drafts."""
    place: int
    """Its row there."""
    num_nodes: int
    is_drawn: bool = False
    """Whether they were drawn from the distributions that come with them."""


@dataclass(slots=True)
class PartialDraft:
    """The nodes so far: at each depth some siblings, the first of which is continued."""

    row: int
    """Row of the batch."""
    max_nodes: int
    max_depth: int
    width: int = 1
    """Siblings at each depth."""
    token_ids: list[int] = field(default_factory=list)
    """The target's ids."""
    parents: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    """The draft's own probability of each node, given its parent."""
    draft_probs: dict[int, torch.Tensor] = field(default_factory=dict)
    """`[V']` by row of `Draft.node_probs`: the distribution from which that node's children were drawn."""
    path: tuple[int, ...] = ()
    """Target ids of the nodes that were continued."""
    is_ended: bool = False
    last: int = -1
    """The node that is continued next."""
    unread: UnreadNodes | None = None
    """The whole draft, if the host has not read it."""

    @property
    def num_wanted(self) -> int:
        """Number of siblings to choose next; 0 if the draft is complete."""
        if self.is_ended or len(self.path) == self.max_depth:
            return 0
        return min(self.width, self.max_nodes - len(self.token_ids))

    def add(self, target_ids: list[int], confidences: list[float] | None, probs: torch.Tensor | None) -> None:
        """Add siblings below the current node, and make the first of them the current node."""
        if probs is not None:
            self.draft_probs[self.last + 1] = probs
        self.last = self.append(self.last, target_ids, confidences)[0]
        self.path = (*self.path, target_ids[0])

    def append(self, parent: int, target_ids: list[int], confidences: list[float] | None) -> range:
        """Append children of a node (-1: the last committed token); a repeated id ends the list. Returns the new nodes."""
        first = len(self.token_ids)
        seen = set(target_ids)
        for place, token in enumerate(target_ids):
            if token not in seen:
                break
            seen.remove(token)
            self.token_ids.append(token)
            self.parents.append(parent)
            if confidences is not None:
                self.confidences.append(confidences[place])
        return range(first, len(self.token_ids))


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
    has_probs = [draft is not None and draft.is_drawn for draft in drafts]
    is_drawn = any(has_probs)
    has_confidence = made.parents is not None and made.confidences.numel() > 0
    places = [min(row, len(made.token_ids) - 1) if d is None else d.place for row, d in enumerate(drafts)]
    is_in_order = places == [*range(len(places))]
    token_ids, parents, probs, confidences = (
        kind
        if kind is None
        else kind[: len(places)]
        if is_in_order
        else torch.stack([kind[place] for place in places])
        for kind in (
            made.token_ids,
            made.parents,
            made.draft_probs if is_drawn else None,
            made.confidences if has_confidence else None,
        )
    )
    assert token_ids is not None
    return Draft(
        token_ids,
        parents,
        sampling=DraftSampling.IID if is_drawn else DraftSampling.DETERMINISTIC,
        node_probs=probs,
        has_probs=torch.tensor(has_probs) if is_drawn else None,
        vocab_map=vocab_map if is_drawn else None,
        confidence=confidences,
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
