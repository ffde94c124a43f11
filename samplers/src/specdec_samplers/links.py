"""Parents of the nodes in a batch of drafted trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

NO_NODE = -2
"""The parent of padding; -1 is the last committed token."""

Int64s = npt.NDArray[np.int64]


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
    def of(cls, parents: Int64s, counts: Int64s, device: torch.device) -> Links:
        """Make the links of trees `[B, N]` with `counts[i]` nodes each."""
        size, width = parents.shape
        order = np.full((size, width), width, np.int64)
        depths = np.zeros((size, width + 1), np.int64)
        rows = np.arange(size)
        for node in range(width):
            depths[:, node + 1] = np.where(
                parents[:, node] == NO_NODE, 0, depths[rows, parents[:, node] + 1] + 1
            )
        for index, count in enumerate(counts.tolist()):
            order[index, :count] = post_order(parents[index, :count].tolist())
        return cls(
            torch.from_numpy(parents).to(device),
            torch.from_numpy(order).to(device),
            int(depths.max(initial=0)),
        )


def post_order(parents: list[int]) -> list[int]:
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
