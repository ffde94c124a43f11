"""What rows of trees see of each other, if their parents are on the device and the host has not read them."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import torch
from torch.nn.functional import pad

from specdec_kernels.cuda.paged_pass import Int64s
from specdec_kernels.triton.paged_attention.tree import WORD
from specdec_runtime.interfaces import PackedBatch


class TreeNumbers(NamedTuple):
    """What the host knows of the rows `[T]` of such a pass; other rows than nodes are those of chains."""

    tree_mask: Int64s
    """`[T, W]` the rows before its tree that a node sees; see `pack_tree_mask`."""
    positions: Int64s
    """`[T]` those before each node's depth is added."""
    tree_nodes: Int64s
    """`[T, W + 1]` of a node the bit that stands for it, and 1; of other rows 0."""
    first_nodes: Int64s
    """`[T]` of a node the row of the first node of its tree."""
    places: Int64s
    """`[T]` of a node its place among all drafted ones; -1 of other rows."""
    num_places: int

    @classmethod
    def of(cls, batch: PackedBatch, num_words: int) -> Self:
        """Return those of a pass with unread trees, of whose requests none has more than `WORD * num_words` rows."""
        host, ids = batch.host, batch.drafted
        assert host is not None
        assert ids is not None
        num_rows = len(host.token_ids)
        mask = np.full((num_rows, num_words), -1, np.int64)
        nodes, firsts = np.zeros((num_rows, num_words + 1), np.int64), np.zeros(num_rows, np.int64)
        positions = host.positions.copy()
        for segment in batch.segments:
            if segment.num_drafted:
                before = segment.num_rows - segment.num_drafted
                rows = slice(segment.row + before, segment.row + segment.num_rows)
                bits = np.zeros((segment.num_drafted + 1, num_words * WORD), bool)
                bits[0, :before] = True
                np.fill_diagonal(bits[1:, before:], True)
                words = np.packbits(bits, 1, "little").view(np.int64)
                mask[rows], nodes[rows, :-1], nodes[rows, -1] = words[0], words[1:], 1
                firsts[rows], positions[rows] = rows.start, segment.num_cached + before - 1
        places = np.where(host.token_ids < 0, -1 - host.token_ids, -1)
        return cls(mask, positions, nodes, firsts, places, len(ids.num_nodes) * ids.width)

    def parts(self, first: int) -> dict[str, Int64s]:
        """Return the numbers to send, by name; drafted nodes are at `first`, their parents behind all ids."""
        sources = np.where(self.places < 0, 0, first + self.num_places + self.places)
        return {
            "tree_mask": self.tree_mask,
            "positions": self.positions,
            "tree_nodes": self.tree_nodes,
            "first_nodes": self.first_nodes,
            "parent_sources": sources,
        }


def seen_on_paths(parents: torch.Tensor, first_nodes: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
    """Return for each row the sum of the numbers of all nodes down to it, itself included, without a copy to the host.

    Args:
        parents: `[T]` of nodes see `CheckedDraft.parents`, but any number: what does not precede its child is moved there.
        first_nodes: `[T]` see `TreeNumbers`.
        nodes: `[T, N]` numbers of nodes, 0 for other rows.
    """
    num_rows, size = nodes.shape
    rows = torch.arange(num_rows, device=nodes.device)
    above = torch.minimum(parents, rows - first_nodes - 1) + first_nodes
    # One more row ends all paths.
    above = pad(torch.where((parents < 0) | (nodes[:, -1] == 0), num_rows, above), (0, 1), value=num_rows)
    seen = pad(nodes, (0, 0, 0, 1))
    for _ in range(
        (min(num_rows, WORD * (size - 1)) - 1).bit_length()
    ):  # each time the paths are twice as long
        seen = seen + seen[above]
        above = above[above]
    return seen[:-1]
