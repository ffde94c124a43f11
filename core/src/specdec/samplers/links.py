"""Parents of the nodes in a batch of drafted trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

NO_NODE = -2
"""The parent of padding; -1 is the last committed token."""


@dataclass(frozen=True)
class Links:
    """Parents of a batch of trees on the device; a parent precedes its child."""

    parents: torch.Tensor
    """`[B, N]` int64: -1 is the last committed token, `NO_NODE` marks padding."""
    post_order: torch.Tensor
    """`[B, N]` int64: index of each node when children come before their parent, earlier siblings first; N for padding."""
    max_depth: int
    """Depth of the deepest node of the batch."""

    @classmethod
    def of(cls, parents: Sequence[Sequence[int]], width: int, device: torch.device) -> Links:
        """Make the links of trees, given the parents of each one's nodes, at most `width` of them."""
        size = len(parents)
        table, order = np.full((size, width), NO_NODE), np.full((size, width), width)
        for index, row in enumerate(parents):
            table[index, : len(row)] = row
            order[index, : len(row)] = post_order(row)
        depths = np.zeros((size, width + 1), np.int64)
        rows = np.arange(size)
        for node in range(width):
            depths[:, node + 1] = np.where(table[:, node] == NO_NODE, 0, depths[rows, table[:, node] + 1] + 1)
        return cls(
            torch.from_numpy(table).to(device),
            torch.from_numpy(order).to(device),
            int(depths.max(initial=0)),
        )


def post_order(parents: Sequence[int]) -> list[int]:
    """Return each node's index in post-order: children before their parent, earlier siblings first."""
    sizes = [1] * len(parents)
    for node in reversed(range(len(parents))):
        if parents[node] >= 0:
            sizes[parents[node]] += sizes[node]
    free = [0] * (len(parents) + 1)  # first free index in each parent's range
    places = []
    for node, parent in enumerate(parents):
        start = free[parent + 1]
        free[parent + 1] += sizes[node]
        free[node + 1] = start
        places.append(start + sizes[node] - 1)
    return places
