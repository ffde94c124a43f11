"""A packed pass in the form sent to the other ranks: host arrays, which are quick to pickle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from specdec_runtime.interfaces.forward import PackedBatch, Segment

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class PassArrays:
    """A `PackedBatch` without tensors."""

    token_ids: Array
    positions: Array
    slots: Array | None
    logits_rows: Array | None
    segments: list[tuple[int, int, int, int, int]]
    trees: dict[int, tuple[Array, Array | None]]
    """Mask and depths, by index of the segment."""
    longest: int | None


def as_pass_arrays(batch: PackedBatch) -> PassArrays:
    """Convert a pass to the form that is sent."""
    if batch.drafted is not None:
        batch.send()
    rows = batch if batch.host is None or batch.drafted is not None else batch.host
    is_single = len(batch.segments) == 1 and batch.host is not None
    return PassArrays(
        token_ids=_array(rows.token_ids),
        positions=_array(rows.positions),
        slots=None if rows.slots is None or is_single else _array(rows.slots),
        logits_rows=None if rows.logits_rows is None else _array(rows.logits_rows),
        segments=[(s.row, s.num_rows, s.first_slot, s.num_cached, s.num_branched) for s in batch.segments],
        trees={
            index: (_array(s.tree_mask), None if s.depths is None else _array(s.depths))
            for index, s in enumerate(batch.segments)
            if s.tree_mask is not None
        },
        longest=batch.longest,
    )


def on_device(batch: PassArrays, device: torch.device) -> PackedBatch:
    """Convert a received pass to tensors on the device of the model that runs it."""
    segments = [
        Segment(row, num_rows, first_slot, num_cached, num_branched=num_branched)
        for row, num_rows, first_slot, num_cached, num_branched in batch.segments
    ]
    for index, (mask, depths) in batch.trees.items():
        segments[index].tree_mask = torch.from_numpy(mask)
        segments[index].depths = None if depths is None else torch.from_numpy(depths)
    return PackedBatch(
        token_ids=_tensor(batch.token_ids, device),
        positions=_tensor(batch.positions, device),
        segments=segments,
        slots=None if batch.slots is None else _tensor(batch.slots, device),
        logits_rows=None if batch.logits_rows is None else _tensor(batch.logits_rows, device),
        longest=batch.longest,
    )


def _array(numbers: torch.Tensor | Array) -> Array:
    return np.ascontiguousarray(numbers.cpu().numpy() if isinstance(numbers, torch.Tensor) else numbers)


def _tensor(array: Array, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(array).to(device)
