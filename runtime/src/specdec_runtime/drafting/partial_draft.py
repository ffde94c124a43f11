"""The draft of one request while it grows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch

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
