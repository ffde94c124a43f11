"""Walks drafted trees; a chain is the tree in which every node is its predecessor's child."""

from __future__ import annotations

from collections.abc import Sequence


def follow(
    drawn: list[int], row: Sequence[int], parents: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """Return the accepted nodes and the emitted tokens, given the token drawn at the root and after each node.

    Siblings may be equal, and the draft may continue only after a later one. The result is the longest of the
    paths that follow the drawn tokens, and the first of equally long ones.

    Args:
        drawn: `[num_nodes + 1]` tokens; entry 0 belongs to the last committed token.
        row: `[num_nodes]` drafted ids.
        parents: `[num_nodes]` or None for a chain.
    """
    last = -1
    if parents is None:
        while last + 1 < len(row) and row[last + 1] == drawn[last + 1]:
            last += 1
        nodes = list(range(last + 1))
    else:
        depths = {-1: 0}  # of the nodes that follow the drawn tokens
        for node, token in enumerate(row):
            parent = parents[node]
            if parent in depths and token == drawn[parent + 1]:
                depths[node] = depths[parent] + 1
                if depths[node] > depths[last]:
                    last = node
        nodes = path_to(last, parents)
    return nodes, [*(row[node] for node in nodes), drawn[last + 1]]


def path_to(node: int, parents: Sequence[int]) -> list[int]:
    """Return the nodes from the root's child down to a node; none for -1."""
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def node_depths(num_nodes: int, parents: Sequence[int] | None) -> list[int]:
    """Return the depth of every node; children of the last committed token have depth 1."""
    if parents is None:
        return list(range(1, num_nodes + 1))
    depths: list[int] = []
    for parent in parents[:num_nodes]:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return depths
