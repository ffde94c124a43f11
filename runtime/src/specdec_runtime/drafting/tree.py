"""A draft tree under construction, and the selection of its best nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch

from specdec_runtime.drafting.partial_draft import PartialDraft
from specdec_runtime.drafting.passes import RowChunk


@dataclass(slots=True)
class GrowingTree(PartialDraft):
    """A draft with several continued nodes at each depth. Nodes that have been run can have children."""

    draft_ids: list[int] = field(default_factory=list)
    """The nodes' tokens as ids of the draft's input."""
    paths: list[tuple[int, ...]] = field(default_factory=list)
    """Target ids from the first drafted token down to the node."""
    ranks: list[tuple[int, ...]] = field(default_factory=list)
    """The same paths as ranks among siblings, counted from 0."""
    shape: dict[tuple[int, ...], int] | None = None
    """Number of children per path of ranks of a static tree; None for a tree expanded by confidence."""
    scores: list[float] = field(default_factory=list)
    """Logarithm of the joint confidence in a node and its ancestors."""
    _ancestors: dict[int, list[int]] = field(default_factory=dict)
    """Of a run node and its ancestors, the indices of their rows after the committed rows."""

    def add_children(
        self, parent: int, target_ids: list[int], draft_ids: list[int], confidences: list[float]
    ) -> None:
        """Add children of a node (-1: the last committed token), in order of rank or of drawing.

        Args:
            parent: the node.
            target_ids: the children's ids; a repeated id ends the list.
            draft_ids: the same tokens as ids of the draft's input.
            confidences: the draft's own probability of each child, given its parent.
        """
        base = self.scores[parent] if parent >= 0 else 0.0
        path, ranks = self.path_of(parent), self.ranks_of(parent)
        for rank, node in enumerate(self.append(parent, target_ids, confidences)):
            self.draft_ids.append(draft_ids[rank])
            self.paths.append((*path, target_ids[rank]))
            self.ranks.append((*ranks, rank))
            self.scores.append(base + math.log(max(self.confidences[node], 1e-30)))

    def path_of(self, node: int) -> tuple[int, ...]:
        """Return the target ids down to a node; empty for -1."""
        return self.paths[node] if node >= 0 else ()

    def ranks_of(self, node: int) -> tuple[int, ...]:
        """Return the ranks down to a node; empty for -1."""
        return self.ranks[node] if node >= 0 else ()

    def run(self, nodes: list[int], features: torch.Tensor, first_slot: int, num_rows: int) -> RowChunk:
        """Append rows for nodes of one depth to those of earlier nodes; returns the piece that runs them.

        Args:
            nodes: the nodes.
            features: `[n, F]` the carries of their parents.
            first_slot: the request's first cache slot.
            num_rows: number of rows of its committed tokens.
        """
        num_before = len(self._ancestors)
        for node in nodes:
            self._ancestors[node] = [*self._ancestors.get(self.parents[node], []), len(self._ancestors)]
        visible = np.zeros((len(nodes), len(self._ancestors)), np.bool_)
        for index, node in enumerate(nodes):
            visible[index, self._ancestors[node]] = True
        return RowChunk(
            np.array([self.draft_ids[node] for node in nodes]),
            first_slot,
            num_rows + num_before,
            len(nodes),
            features,
            positions=np.array([num_rows + len(self.paths[node]) - 1 for node in nodes]),
            tree_mask=torch.from_numpy(visible),
            num_branched=num_before,
        )

    def best(self, nodes: list[int], count: int) -> list[int]:
        """Return the nodes of highest joint confidence, best first; ties go to the earlier node."""
        return sorted(nodes, key=lambda node: (-self.scores[node], node))[:count]

    def pruned(self) -> PartialDraft:
        """Return the draft of the best `max_nodes` nodes, best first.

        A node follows its parent and never has more joint confidence, so the ancestors of a kept node are kept too.
        """
        nodes = self.best(list(range(len(self.token_ids))), self.max_nodes)
        places = {-1: -1} | {node: place for place, node in enumerate(nodes)}
        return PartialDraft(
            self.row,
            self.max_nodes,
            self.max_depth,
            token_ids=[self.token_ids[node] for node in nodes],
            parents=[places[self.parents[node]] for node in nodes],
            confidences=[self.confidences[node] for node in nodes],
        )


def children_of(paths: tuple[tuple[int, ...], ...]) -> dict[tuple[int, ...], int]:
    """Return the number of children of each inner node of a static tree, by path of ranks; () is the last committed token.

    Raises:
        ValueError: if a path's parent or an earlier sibling is missing.
    """
    known = set(paths)
    counts: dict[tuple[int, ...], int] = {}
    for path in sorted(known, key=lambda p: (len(p), p)):
        if not path or min(path) < 0:
            raise ValueError(f"{list(path)} is not a path: one rank, counted from 0, per depth")
        above, rank = path[:-1], path[-1]
        if above and above not in known:
            raise ValueError(f"the path {list(path)} needs the path {list(above)}")
        if rank != counts.get(above, 0):
            raise ValueError(f"the path {list(path)} needs the path {[*above, rank - 1]}")
        counts[above] = rank + 1
    return counts
