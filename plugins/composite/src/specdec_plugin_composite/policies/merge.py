"""`merge`: one tree of all drafts."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import ClassVar

from specdec_plugin_composite.offer import Offer, accumulated
from specdec_plugin_composite.policy import Policy
from specdec_plugin_composite.round import Choice, Round

_UNKNOWN = 0.6
"""Acceptance of a node, given its parent's, where the member estimates none."""


class Merge(Policy):
    """Asks all members, and verifies the likeliest nodes of all drafts as one tree with at most `max_nodes` nodes.

    Nodes with the same path are one node. A node counts as likely as the member says that rates its path highest.
    """

    name: ClassVar[str] = "merge"
    makes_trees: ClassVar[bool] = True

    def draft(self, turn: Round) -> list[Choice]:
        """Return one tree for each row."""
        by_member = [turn.offers(number) for number in range(len(self.members))]
        return [
            _merged([offer for offer in offers if offer is not None], most)
            for offers, most in zip(zip(*by_member, strict=True), turn.max_nodes, strict=True)
        ]


def _merged(offers: Sequence[Offer], most: int) -> Offer | None:
    if len(offers) < 2:
        return offers[0] if offers else None
    chances: dict[tuple[int, ...], float] = {}
    for offer in offers:
        paths: list[tuple[int, ...]] = []
        given = offer.confidence or (_UNKNOWN,) * len(offer.token_ids)
        values = accumulated(offer.parents, given)
        for token, parent, value in zip(offer.token_ids, offer.parents, values, strict=True):
            path = (*(paths[parent] if parent >= 0 else ()), token)
            paths.append(path)
            chances[path] = max(value, chances.get(path, 0.0))
    children: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for path in chances:
        children.setdefault(path[:-1], []).append(path)
    open_paths: list[tuple[float, int, tuple[int, ...]]] = []
    places: dict[tuple[int, ...], int] = {(): -1}
    number = 0
    parents: list[int] = []
    last: tuple[int, ...] = ()
    while True:
        for path in children.get(last, ()):
            heappush(open_paths, (-chances[path], number, path))
            number += 1
        if not open_paths or len(parents) == most:
            break
        last = heappop(open_paths)[2]
        parents.append(places[last[:-1]])
        places[last] = len(parents) - 1
    nodes = [path for path in places if path]
    name = "+".join(dict.fromkeys(offer.proposer for offer in offers))
    return Offer(tuple(path[-1] for path in nodes), tuple(parents), name)
