"""One packed forward pass: rows of several requests, one after another."""

from __future__ import annotations

from dataclasses import dataclass

import torch

PROBE_ROWS = 16
"""The most rows of `probe_batch`."""


@dataclass(slots=True)
class Segment:
    """The rows of one request in a packed pass. Slots of a request are contiguous: position p lies in `first_slot + p`."""

    row: int
    """First row in the packed pass."""
    num_rows: int
    first_slot: int
    """Cache slot of the request's position 0."""
    num_cached: int
    """Rows of the request that are in the cache already; the new rows follow them."""
    tree_mask: torch.Tensor | None = None
    """`[num_rows, num_branched + num_rows]` bool: which of the branches in the cache, and which new rows, each new row sees;
    None means a chain."""
    depths: torch.Tensor | None = None
    """`[num_rows]` int64: position of each row minus that of the first row behind what all see; None for a chain."""
    num_branched: int = 0
    """How many of the cached rows, the last ones, are branches of a tree that not every new row sees."""

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
    """`[R]` int64 rows whose logits are wanted; None means all."""


@dataclass(slots=True)
class ForwardOutput:
    """What a forward pass returns."""

    logits: torch.Tensor
    """`[R, V]` in the model's dtype."""
    hidden_states: torch.Tensor | None
    """`[T, H]` after the final norm, where asked for."""
    aux_hidden_states: tuple[torch.Tensor, ...]
    """`[T, H]` per aux layer id: the input of that layer."""


def probe_batch(vocab_size: int, max_context: int, device: torch.device) -> PackedBatch:
    """Return a pass of one request, all logits wanted, for looking at a model once at load.

    Its ids lie evenly over the vocabulary, whose first ones are often special tokens: trained models treat those unlike
    all others, and in 16 bits round much more there.

    Args:
        vocab_size: ids of the model.
        max_context: the longest sequence; it has no more rows than that, nor than `PROBE_ROWS`.
        device: where it runs.
    """
    num_rows = min(PROBE_ROWS, max_context)
    positions = torch.arange(num_rows, device=device)
    ids = (2 * positions + 1) * vocab_size // (2 * num_rows)
    segments = [Segment(row=0, num_rows=num_rows, first_slot=0, num_cached=0)]
    return PackedBatch(ids, positions, segments, slots=None, logits_rows=None)
