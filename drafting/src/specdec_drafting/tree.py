"""A draft tree under construction, and the selection of its best nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch

from specdec_drafting.sketch import Sketch


@dataclass(slots=True)
class GrowingTree:
    """The nodes of one request's draft so far. Nodes that have been run can have children."""

    row: int
    """Row of the batch."""
    max_nodes: int
    max_depth: int
    token_ids: list[int] = field(default_factory=list)
    draft_ids: list[int] = field(default_factory=list)
    """The same tokens as ids of the draft's input."""
    parents: list[int] = field(default_factory=list)
    paths: list[tuple[int, ...]] = field(default_factory=list)
    """Target ids from the first drafted token down to the node."""
    ranks: list[tuple[int, ...]] = field(default_factory=list)
    """The same paths as ranks among siblings, counted from 0."""
    chances: list[float] = field(default_factory=list)
    """Confidence in each node, given its parent."""
    scores: list[float] = field(default_factory=list)
    """Logarithm of the joint confidence in a node and its ancestors."""
    laws: dict[int, torch.Tensor] = field(default_factory=dict)
    """Distributions by row of `Draft.node_probs`."""
    _places: dict[int, int] = field(default_factory=dict)
    """Index of a run node's row after the committed rows."""
    _ancestors: dict[int, list[int]] = field(default_factory=dict)
    """These indices of a run node and its ancestors."""

    def add(
        self, parent: int, target_ids: list[int], draft_ids: list[int], chances: list[float]
    ) -> list[int]:
        """Add children of a node (-1: the last committed token), in order of rank or of drawing; returns the new nodes.

        Args:
            parent: the node.
            target_ids: the children's ids; a repeated id ends the list.
            draft_ids: the same tokens as ids of the draft's input.
            chances: confidence in each child, given its parent.
        """
        base, path, ranks = (
            self.scores[parent] if parent >= 0 else 0.0,
            self.path_of(parent),
            self.ranks_of(parent),
        )
        first, seen = len(self.token_ids), set[int]()
        for rank, (token, other, chance) in enumerate(zip(target_ids, draft_ids, chances, strict=True)):
            if token in seen:
                break
            seen.add(token)
            self.token_ids.append(token)
            self.draft_ids.append(other)
            self.parents.append(parent)
            self.paths.append((*path, token))
            self.ranks.append((*ranks, rank))
            self.chances.append(chance)
            self.scores.append(base + math.log(max(chance, 1e-30)))
        return list(range(first, len(self.token_ids)))

    def path_of(self, node: int) -> tuple[int, ...]:
        """Return the target ids down to a node; empty for -1."""
        return self.paths[node] if node >= 0 else ()

    def ranks_of(self, node: int) -> tuple[int, ...]:
        """Return the ranks down to a node; empty for -1."""
        return self.ranks[node] if node >= 0 else ()

    @property
    def num_run(self) -> int:
        """Number of nodes that have rows."""
        return len(self._places)

    def run(self, nodes: list[int]) -> torch.Tensor:
        """Append rows for nodes to those of earlier nodes; returns which rows each node sees, `[n, num_run]` bool."""
        for node in nodes:
            place = self._places[node] = len(self._places)
            parent = self.parents[node]
            self._ancestors[node] = [*self._ancestors.get(parent, []), place]
        visible = np.zeros((len(nodes), self.num_run), np.bool_)
        for index, node in enumerate(nodes):
            visible[index, self._ancestors[node]] = True
        return torch.from_numpy(visible)

    def best(self, nodes: list[int], count: int) -> list[int]:
        """Return the nodes of highest joint confidence, best first; ties go to the earlier node."""
        return sorted(nodes, key=lambda node: (-self.scores[node], node))[:count]

    def sketch(self, *, is_pruned: bool) -> Sketch:
        """Return the draft: all nodes in the order added, or the best `max_nodes` of them, best first.

        A node follows its parent and never has more joint confidence, so the ancestors of a kept node are kept too.
        """
        nodes = list(range(len(self.token_ids)))
        if is_pruned:
            nodes = self.best(nodes, self.max_nodes)
        places = {node: place for place, node in enumerate(nodes)}
        return Sketch(
            self.row,
            self.max_nodes,
            self.max_depth,
            width=1,
            token_ids=[self.token_ids[node] for node in nodes],
            parents=[places[self.parents[node]] if self.parents[node] >= 0 else -1 for node in nodes],
            confidence=[self.chances[node] for node in nodes],
            laws=self.laws,
        )


def comb_paths(num_nodes: int, width: int) -> tuple[tuple[int, ...], ...]:
    """Return the static tree with `width` siblings at each depth, the first of which is continued."""
    paths = [((0,) * (node // width)) + (node % width,) for node in range(num_nodes)]
    return tuple(paths)


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
