"""Packs rows of requests into one forward pass, as the engine's scorer and proposers do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specdec_runtime.interfaces import PackedBatch, Segment


@dataclass(frozen=True)
class RequestRows:
    """The rows of one request in a pass."""

    first_slot: int
    num_cached: int
    """Rows in the cache before, branches included."""
    token_ids: tuple[int, ...]
    """Tokens of the new rows."""
    parents: tuple[int, ...] | None = None
    """Parents of the branches in the cache, then of the new rows; -1 is the last row that all see. None means a chain."""

    @property
    def num_branched(self) -> int:
        """Number of cached rows that are branches."""
        return 0 if self.parents is None else len(self.parents) - len(self.token_ids)

    @property
    def end(self) -> int:
        """Rows in the cache after the pass."""
        return self.num_cached + len(self.token_ids)


def packed(
    requests: Sequence[RequestRows], device: torch.device, logits_rows: Sequence[int] | None = None
) -> PackedBatch:
    """Return the pass of some requests; `logits_rows` as in `PackedBatch`."""
    segments: list[Segment] = []
    positions: list[torch.Tensor] = []
    row = 0
    for request in requests:
        count, branched = len(request.token_ids), request.num_branched
        segment = Segment(row, count, request.first_slot, request.num_cached, num_branched=branched)
        offsets = torch.arange(count)
        if request.parents is not None:
            visible = _visible(request.parents)[branched:]
            offsets = visible.sum(1) - 1
            segment.tree_mask, segment.depths = visible, offsets
        segments.append(segment)
        positions.append(request.num_cached - branched + offsets)
        row += count
    ids = torch.tensor([token for request in requests for token in request.token_ids])
    slots = [torch.arange(r.num_cached, r.end) + r.first_slot for r in requests]
    return PackedBatch(
        token_ids=ids.to(device),
        positions=torch.cat(positions).to(device),
        segments=segments,
        slots=None if len(requests) == 1 else torch.cat(slots).to(device),
        logits_rows=None if logits_rows is None else torch.tensor(list(logits_rows)).to(device),
    )


def _visible(parents: Sequence[int]) -> torch.Tensor:
    """Return which nodes `[n, n]` each node sees: its ancestors and itself."""
    visible = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            visible[node] |= visible[parent]
    return visible
