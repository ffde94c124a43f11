"""Reads trees out of their masks."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor, lengths: Tensor, positions: Tensor, index: Tensor, next_token: Tensor, next_sibling: Tensor,
    num_requests: int, width: int,
) -> None:  # fmt: skip
    """Write each node's position, index, first child and next sibling; -1 for none.

    A parent is a node's last ancestor: `tree_mask[b, i, j]` says that j is one of i, or i itself.
    """
    mask = tree_mask[: num_requests * width**2].view(num_requests, width, width).bool()
    for b, tree in enumerate(mask):
        above = tree.tril(-1)
        positions[b * width : (b + 1) * width] = lengths[b] + above.sum(1)
        index[b] = torch.arange(b * width, (b + 1) * width)
        parents = [max(row.nonzero().flatten().tolist(), default=-1) for row in above]
        for node, parent in enumerate(parents):
            children = [k for k in range(node + 1, width) if parents[k] == node]
            siblings = [k for k in range(node + 1, width) if parents[k] == parent]
            next_token[b, node] = children[0] if children else -1
            next_sibling[b, node] = siblings[0] if siblings and parent >= 0 else -1
