"""Walks drafted trees; a chain is the tree in which every node is its predecessor's child."""

from __future__ import annotations


def follow(drawn: list[int], row: tuple[int, ...], parents: list[int] | None) -> tuple[list[int], list[int]]:
    """Return the accepted nodes and the emitted tokens, given the token drawn at the root and after each node.

    Args:
        drawn: `[num_nodes + 1]` tokens; entry 0 belongs to the last committed token.
        row: `[num_nodes]` drafted ids.
        parents: `[num_nodes]` or None for a chain.
    """
    nodes: list[int] = []
    emitted: list[int] = []
    node = -1
    while True:
        token = drawn[node + 1]
        emitted.append(token)
        if parents is None:
            child = node + 1 if node + 1 < len(row) and row[node + 1] == token else -1
        else:
            child = next((j for j in range(node + 1, len(row)) if parents[j] == node and row[j] == token), -1)
        if child < 0:
            return nodes, emitted
        nodes.append(child)
        node = child


def node_depths(num_nodes: int, parents: list[int] | None) -> list[int]:
    """Return the depth of every node; children of the last committed token have depth 1."""
    if parents is None:
        return list(range(1, num_nodes + 1))
    depths: list[int] = []
    for parent in parents[:num_nodes]:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return depths
