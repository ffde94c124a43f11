"""A draft: what a proposer returns for one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from operator import index as as_int
from typing import Any

import numpy as np
import torch

from specdec.interfaces.device_nodes import DeviceNodes, Rows

PADDING_ID = -1
"""Pads `Draft.token_ids` at the end of a row; as a parent it means the last committed token."""


class DraftSampling(Enum):
    """How the children of one node were chosen."""

    DETERMINISTIC = "deterministic"
    """Not drawn: point masses without q."""

    IID = "iid"
    """Drawn independently from the parent's distribution."""

    WITHOUT_REPLACEMENT = "without_replacement"
    """Drawn one after another, each from the parent's distribution with earlier siblings removed."""


@dataclass(frozen=True)
class Draft:
    """Drafted tokens for every row of a `ProposeBatch`, as chains or trees.

    Any prefix of a row is a valid draft. Nodes without q are ordered best first. Nodes drawn from q are in
    the order in which they were drawn. Whether a drawn node is present may depend on nodes before it, never
    on its own token or later ones.
    """

    token_ids: torch.Tensor
    """`[B, N]` int64, padded at the end with -1."""
    parents: torch.Tensor | None = None
    """`[B, N]` int64 or None for chains. A parent precedes its child; -1 is the last committed token."""
    sampling: DraftSampling = DraftSampling.DETERMINISTIC
    """How the tokens were chosen."""
    node_probs: torch.Tensor | None = None
    """`[B, N + 1, V']` float or None. Row 0 is the distribution that the children of the last committed token
    were drawn from; row j + 1 is that of the children of node j. Rows are after the draft's own temperature,
    top-k, top-p and min-p, and before siblings are removed. `sampling` must then say how siblings were drawn:
    `IID` (for chains too) or `WITHOUT_REPLACEMENT`."""
    has_probs: torch.Tensor | None = None
    """`[B]` bool, best on the host: rows that carry q. None means all rows do if `node_probs` is given, else none."""
    vocab_map: torch.Tensor | None = None
    """`[V']` int64: target id of each id of a reduced draft vocabulary, all different and all in the target's
    vocabulary. None if the ids are the same. Pass the same tensor in every step: core copies and checks it only
    the first time, and later changes of its numbers have no effect."""
    confidence: torch.Tensor | None = None
    """`[B, N]` float: estimated probability that a node is accepted, given that its parent is."""
    proposers: tuple[str, ...] | None = None
    """For each row, the name of the proposer that drafted it, if one proposer calls others; None means the
    proposer itself. For display only."""
    num_nodes: tuple[int, ...] | None = None
    """`[B]` number of nodes of each row, for point masses, and chains with q: core then does not wait for `token_ids` and
    `parents` that are on a device, but reads them with the verdict, and confidence not at all. What follows a row's nodes may
    be anything. A node whose row of q does not sum to 1 within 1e-5 is rejected, also in rows that carry no q."""

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """`[B]` token ids without padding; copies them from the device."""
        rows = self.token_ids.tolist()
        if self.num_nodes is not None:
            return tuple(tuple(row[:count]) for row, count in zip(rows, self.num_nodes, strict=True))
        return tuple(map(_unpadded, rows))

    @classmethod
    def from_lists(
        cls,
        rows: Sequence[Sequence[int]],
        parents: Sequence[Sequence[int]] | None = None,
        *,
        confidence: Sequence[Sequence[float]] | None = None,
        device: torch.device | str = "cpu",
    ) -> Draft:
        """Make a draft from ragged rows of token ids (and, for trees, rows of parents of the same lengths).

        A row may be a list, an array or a tensor.

        Raises:
            TypeError: if an id or a parent is not an integer.
            ValueError: if `parents` or `confidence` do not have the lengths of `rows`.
        """
        for name, other in (("parents", parents), ("confidence", confidence)):
            if other is not None and [len(r) for r in other] != [len(r) for r in rows]:
                raise ValueError(f"Draft.from_lists: {name} must have the row lengths of the token ids")
        if not any(map(len, rows)):
            none = cls.empty(len(rows), device).token_ids
            return cls(
                token_ids=none,
                parents=None if parents is None else none,
                confidence=None if confidence is None else none.float(),
            )
        chances = None if confidence is None else [_listed(row) for row in confidence]
        return cls(
            token_ids=_padded(_integers(rows), PADDING_ID, np.int64, device),
            parents=None if parents is None else _padded(_integers(parents), PADDING_ID, np.int64, device),
            confidence=None if chances is None else _padded(chances, 0.0, np.float32, device),
        )

    @classmethod
    def empty(cls, batch_size: int, device: torch.device | str = "cpu") -> Draft:
        """Make a draft without nodes for `batch_size` rows."""
        ids = torch.empty((batch_size, 0), dtype=torch.int64, device=device)
        return cls(token_ids=ids)


@dataclass(frozen=True)
class DrawnNodes:
    """The distributions that nodes were drawn from, for rows of a checked draft that carry q."""

    token_ids: torch.Tensor
    """`[B, N]` int64 ids as they were drawn, padded with -1: those outside the vocabulary are still there."""
    node_probs: torch.Tensor
    """`[B, N + 1, V']`; see `Draft.node_probs`. Rows that nodes were drawn from are distributions, or 0: p follows, no node."""
    sampling: DraftSampling
    """`IID` or `WITHOUT_REPLACEMENT`."""
    has_probs: torch.Tensor | None = None
    """`[B]` bool, on any device: rows that carry q; None means all."""
    vocab_map: torch.Tensor | None = None
    """`[V']`; see `Draft.vocab_map`."""


@dataclass(frozen=True)
class CheckedDraft:
    """What core accepted of a draft, before it is scored and verified. Nothing on the host belongs to a proposer."""

    rows: Rows
    """`[B]` the token ids that are scored: a drawn id outside the vocabulary, which can only be rejected, is replaced by a
    valid one here. With `device_nodes` all rows are empty, see `read`."""
    parents: Rows | None = None
    """`[B]` the parent of every node, which precedes it; -1 is the last committed token. None if all rows are chains."""
    drawn: DrawnNodes | None = None
    """None if no row carries q; the nodes of rows without q are point masses."""
    proposers: tuple[str, ...] | None = None
    """`[B]` name of the proposer that drafted each row, if one proposer calls others."""
    confidence: tuple[tuple[float, ...], ...] | None = None
    """`[B]` see `Draft.confidence`; for proposers that call others."""
    device_nodes: DeviceNodes | None = None
    """The nodes of all rows, if they are on a device: the proposer's own tensors, until the pass has copied them."""

    @property
    def num_nodes(self) -> list[int]:
        """`[B]` number of nodes of each row."""
        return [*map(len, self.rows)] if self.device_nodes is None else [*self.device_nodes.num_nodes]

    def read(self) -> CheckedDraft:
        """Return the draft with its nodes on the host; waits for a device that has them."""
        if self.device_nodes is None:
            return self
        rows, parents = self.device_nodes.read()
        return replace(self, rows=rows, parents=parents, device_nodes=None)

    @classmethod
    def empty(cls, batch_size: int) -> CheckedDraft:
        """Make a draft without nodes for `batch_size` rows."""
        return cls(((),) * batch_size)


def _unpadded(row: list[int]) -> tuple[int, ...]:
    length = len(row)
    while length and row[length - 1] == PADDING_ID:
        length -= 1
    return tuple(row[:length])


def _listed(row: Any) -> Any:
    """Return an array or tensor as a list of Python numbers, and any other row unchanged."""
    return row.tolist() if isinstance(row, np.ndarray | torch.Tensor) else row


def _integers(rows: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(as_int, _listed(row))) for row in rows)


def _padded(
    rows: Sequence[Sequence[float]],
    padding: float,
    dtype: type[np.int64 | np.float32],
    device: torch.device | str,
) -> torch.Tensor:
    width = max(map(len, rows), default=0)
    filled = [[*row, *([padding] * (width - len(row)))] for row in rows]
    return torch.from_numpy(np.array(filled, dtype).reshape(len(rows), width)).to(device)
