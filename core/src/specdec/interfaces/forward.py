"""One packed forward pass: the rows of several requests, concatenated."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(slots=True)
class Segment:
    """The rows of one request in a packed pass. A request's slots are contiguous: position p is in `first_slot + p`."""

    row: int
    """First row in the packed pass."""
    num_rows: int
    first_slot: int
    """Cache slot of the request's position 0."""
    num_cached: int
    """Rows of the request that are already in the cache; the new rows follow them."""
    tree_mask: torch.Tensor | None = None
    """`[num_rows, num_branched + num_rows]` bool: which cached branch rows, and which new rows, each new row sees.
    None means a chain."""
    depths: torch.Tensor | None = None
    """`[num_rows]` int64: position of each row, relative to the first position after the rows that all new rows see.
    None for a chain."""
    num_branched: int = 0
    """Number of cached rows, the last ones, that are tree branches not visible to every new row."""
    owner: object | None = None
    """The request, by which layers that keep states find its own; None for one whose rows are not continued."""
    num_drafted: int = 0
    """Number of drafted rows, the last ones: a later pass of the request may overwrite them."""

    @property
    def kv_len(self) -> int:
        """Rows in the cache once this pass has written its own."""
        return self.num_cached + self.num_rows


@dataclass(slots=True)
class PackedBatch:
    """Inputs of one forward pass over T rows."""

    token_ids: torch.Tensor
    """`[T]` int64."""
    positions: torch.Tensor
    """`[T]` int64; a tree node's position is its request's committed length plus its depth."""
    segments: list[Segment]
    slots: torch.Tensor | None
    """`[T]` int64 cache slot of each row; None if there is one segment."""
    logits_rows: torch.Tensor | None
    """`[R]` int64 rows whose logits are needed; None means all."""
    longest: int | None = None
    """All positions are below this; None if they are below the longest `Segment.kv_len`, as in every pass but a probe."""


@dataclass(slots=True)
class ForwardOutput:
    """Output of a forward pass."""

    logits: torch.Tensor
    """`[R, V]` in the model's dtype or float32; `[R, V']` for heads."""
    hidden_states: torch.Tensor | None = None
    """`[T, H]` after the final norm, if requested. For heads the carry `[T, F]`: the feature of the next token, if that token
    is drafted."""
    aux_hidden_states: tuple[torch.Tensor, ...] = ()
    """`[T, H]` per aux layer id: the input of that layer."""
