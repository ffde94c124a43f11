"""Trees of successors, the most probable nodes first."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

from specdec_plugin_recycling.successors import SuccessorTable


@dataclass
class Tree:
    """Nodes in the order in which they were added, parents before children."""

    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    """-1 is the last committed token."""
    confidence: list[float] = field(default_factory=list)
    """Probability of each node, given its parent."""


def grow(table: SuccessorTable, last: int, most: int, least: float, *, is_chain: bool) -> Tree:
    """Return at most `most` nodes after a token, each with an estimated probability of at least `least`.

    Args:
        table: successors of each token.
        last: the last committed token.
        most: maximum number of nodes.
        least: minimum of the product of the probabilities along a node's path.
        is_chain: whether only the most probable successor of each token is drafted.
    """
    tree = Tree()
    waiting: list[tuple[float, int, int, int, float]] = []
    """Negative probability of the path, a number that breaks ties, id, parent, probability given the parent."""
    num_added = 0

    def add_successors(token_id: int, node: int, probability: float) -> None:
        nonlocal num_added
        for following, likely in zip(*(table.get(token_id) or ((), ())), strict=True):
            if probability * likely < least:
                return
            num_added += 1
            heappush(waiting, (-probability * likely, num_added, following, node, likely))
            if is_chain:
                return

    if most:
        add_successors(last, -1, 1.0)
    while waiting and len(tree.token_ids) < most:
        negative, _, token_id, parent, likely = heappop(waiting)
        tree.token_ids.append(token_id)
        tree.parents.append(parent)
        tree.confidence.append(likely)
        add_successors(token_id, len(tree.token_ids) - 1, -negative)
    return tree
