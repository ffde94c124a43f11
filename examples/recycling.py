"""Token recycling (Luo et al. 2024, arXiv 2408.08696) as a local file: `{"method": "./recycling.py:Recycling"}`.

What the target held for probable after a token is the draft the next time that the token is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from specdec.interfaces import (
    Capability,
    Draft,
    FinishReason,
    ProposeBatch,
    Proposer,
    ProposerConfig,
    TargetInfo,
)

TREE = ((-1, 0), (-1, 1), (0, 0), (0, 1), (2, 0), (1, 0), (4, 0), (6, 0))
"""Parent and rank of each node: the likeliest path is the deepest."""


class Recycling(Proposer):
    """Drafts a tree of fixed shape from the ids that followed each token last."""

    name = "recycling_example"
    capabilities = frozenset({Capability.TARGET_TOP_K, Capability.TREE})
    num_top_k = 2

    def __init__(self, config: ProposerConfig, target: TargetInfo) -> None:
        super().__init__(config, target)
        self.capabilities = type(self).capabilities & target.gives
        # For each request, the ids after each token, and the number of tokens that were known with them.
        self.seen: dict[str, list[tuple[int, int, list[int]]]] = {}

    def propose(self, batch: ProposeBatch) -> Draft:
        """Take in what was probable, then walk the tree."""
        for row, request_id in enumerate(batch.request_ids):
            start, ids = batch.starts[row], batch.token_ids(row).tolist()
            kept = [entry for entry in self.seen.get(request_id, []) if entry[0] <= start]
            if Capability.TARGET_TOP_K not in self.capabilities:  # only the text is known
                kept = [(0, token, [following]) for token, following in pairwise(ids)]
            self.seen[request_id] = kept
        if (top := batch.top_k) is not None:
            for row, node, token, ids in zip(
                top.rows, top.nodes, top.token_ids.tolist(), top.top_ids.tolist(), strict=True
            ):
                self.seen[batch.request_ids[row]].append((batch.starts[row] + node + 1, token, ids))
        trees = [
            self._tree(
                {token: ids for _, token, ids in self.seen[request_id]},
                int(batch.token_ids(row)[-1]),
                batch.max_nodes[row],
            )
            for row, request_id in enumerate(batch.request_ids)
        ]
        if Capability.TREE not in self.capabilities:  # the engine verifies chains: the likeliest path
            return Draft.from_lists([[token for token, _, rank in tree if rank == 0][:2] for tree in trees])
        return Draft.from_lists(
            [[token for token, *_ in t] for t in trees], [[parent for _, parent, _ in t] for t in trees]
        )

    def finish(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """Drop what belongs to these requests."""
        for request_id in request_ids:
            self.seen.pop(request_id, None)

    @staticmethod
    def _tree(after: dict[int, list[int]], last: int, most: int) -> list[tuple[int, int, int]]:
        """Return token, parent and rank of each node that is known."""
        nodes: list[tuple[int, int, int]] = []
        places: dict[int, int] = {-1: -1}
        for number, (above, rank) in enumerate(TREE):
            if len(nodes) == most or above not in places:
                continue
            parent = places[above]
            following = after.get(last if parent < 0 else nodes[parent][0], [])
            if rank < len(following):
                places[number] = len(nodes)
                nodes.append((following[rank], parent, rank))
        return nodes
