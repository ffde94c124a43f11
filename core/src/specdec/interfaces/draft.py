"""A draft: what a proposer returns for one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import index as as_int
from typing import Any

import numpy as np
import torch

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
    node_probs: torch.Tensor | None = None
    """`[B, N + 1, V']` float or None. Row 0 is the distribution that the children of the last committed token
    were drawn from; row j + 1 is that of the children of node j. Rows are after the draft's own temperature,
    top-k, top-p and min-p, and before siblings are removed. `sampling` must then say how siblings were drawn:
    `IID` (for chains too) or `WITHOUT_REPLACEMENT`."""
    has_probs: torch.Tensor | None = None
    """`[B]` bool: rows that carry q. None means all rows do if `node_probs` is given, else none."""
    vocab_map: torch.Tensor | None = None
    """`[V']` int64: target id of each id of a reduced draft vocabulary, all different and all in the target's
    vocabulary. None if the ids are the same. Pass the same tensor in every step: core copies and checks it only
    the first time, and later changes of its numbers have no effect."""
    confidence: torch.Tensor | None = None
    """`[B, N]` float: estimated probability that a node is accepted, given that its parent is."""
    proposers: tuple[str, ...] | None = None
    """For each row, the name of the proposer that drafted it, if one proposer calls others; None means the
    proposer itself. For display only."""
    host_rows: tuple[tuple[int, ...], ...] | None = field(default=None, repr=False, compare=False)
    """The same token ids as ragged host rows; `from_lists` keeps them to save a copy from the device. In a
    draft that core has checked, these are the ids that are scored: a drawn id outside the vocabulary, which
    can only be rejected, is replaced by a valid one here."""

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
        host_rows = _integers(rows)
        chances = None if confidence is None else [_listed(row) for row in confidence]
        return cls(
            token_ids=_padded(host_rows, PADDING_ID, np.int64, device),
            parents=None if parents is None else _padded(_integers(parents), PADDING_ID, np.int64, device),
            confidence=None if chances is None else _padded(chances, 0.0, np.float32, device),
            host_rows=host_rows,
        )

    @classmethod
    def empty(cls, batch_size: int, device: torch.device | str = "cpu") -> Draft:
        """Make a draft without nodes for `batch_size` rows."""
        ids = torch.empty((batch_size, 0), dtype=torch.int64, device=device)
        return cls(token_ids=ids, host_rows=((),) * batch_size)


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
