"""Trees of successors, the most probable nodes first."""

from __future__ import annotations

from heapq import heappop, heappush

from specdec_plugin_recycling.successors import SuccessorTable

Tree = tuple[list[int], list[int]]
"""The ids of the nodes, and their parents; -1 is the last committed token."""


def grow(table: SuccessorTable, last: int, most: int, least: float, *, is_chain: bool) -> Tree:
    """Return at most `most` nodes after a token, each with an estimated probability of at least `least`.

    Args:
        table: successors of each token.
        last: the last committed token.
        most: maximum number of nodes.
        least: minimum of the product of the probabilities along a node's path.
        is_chain: whether only the most probable successor of each token is drafted.
    """
    nodes: list[int] = []
    parents: list[int] = []
    open_nodes: list[tuple[float, int, int, int]] = []
    """Negative probability, a number that breaks ties, id, parent."""

    def add_successors(token_id: int, node: int, probability: float) -> None:
        for rank, (following, likely) in enumerate(zip(*(table.get(token_id) or ((), ())), strict=True)):
            if probability * likely < least or (is_chain and rank):
                return
            heappush(open_nodes, (-probability * likely, len(nodes) * 64 + rank, following, node))

    add_successors(last, -1, 1.0)
    while open_nodes and len(nodes) < most:
        negative, _, token_id, parent = heappop(open_nodes)
        nodes.append(token_id)
        parents.append(parent)
        add_successors(token_id, len(nodes) - 1, -negative)
    return nodes, parents
