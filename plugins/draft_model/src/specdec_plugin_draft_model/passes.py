"""Packed passes of the draft model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from specdec.runner import ModelRunner, PackedBatch, Segment

Int64s = npt.NDArray[np.int64]
MAX_PASS_ROWS = 2048
"""Rows of one pass; what more there is to take in goes into further ones."""


@dataclass(slots=True)
class Piece:
    """Rows of one request that a pass adds behind those in the cache."""

    ids: Int64s
    """`[n]` the draft's ids."""
    first_slot: int
    num_cached: int
    num_logits: int
    """How many of the last rows give logits."""


def run(runner: ModelRunner, pieces: Sequence[Piece]) -> torch.Tensor:
    """Run pieces, in as many passes as they need; returns logits `[R, Vd]` of the rows that give some, in order."""
    logits = [part for pieces in _portions(pieces) if (part := _run(runner, pieces)) is not None]
    return logits[0] if len(logits) == 1 else torch.cat(logits)


def _portions(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yield the pieces of one pass after the other; a long piece is spread over several."""
    if sum(len(piece.ids) for piece in pieces) <= MAX_PASS_ROWS:
        yield list(pieces)
        return
    portion: list[Piece] = []
    room = MAX_PASS_ROWS
    for piece in pieces:
        ids, cached = piece.ids, piece.num_cached
        while len(ids):
            # The rows that give logits stay together.
            count = min(len(ids), room)
            if count < len(ids):
                count = min(count, len(ids) - piece.num_logits)
            if count > 0:
                is_last = count == len(ids)
                portion.append(
                    Piece(ids[:count], piece.first_slot, cached, piece.num_logits if is_last else 0)
                )
                ids, cached, room = ids[count:], cached + count, room - count
            if len(ids) or room == 0:
                yield portion
                portion, room = [], MAX_PASS_ROWS
    if portion:
        yield portion


def _run(runner: ModelRunner, pieces: list[Piece]) -> torch.Tensor | None:
    device = runner.device
    segments: list[Segment] = []
    positions: list[Int64s] = []
    wanted: list[int] = []
    row = 0
    for piece in pieces:
        count = len(piece.ids)
        segments.append(Segment(row, count, piece.first_slot, piece.num_cached))
        positions.append(np.arange(piece.num_cached, piece.num_cached + count))
        row += count
        wanted.extend(range(row - piece.num_logits, row))
    is_single = len(pieces) == 1
    slots = [piece.first_slot + places for piece, places in zip(pieces, positions, strict=True)]
    # One row is asked for where none is wanted: a pass over the head of the model is always made.
    rows = wanted or [0]
    output = runner.forward(
        PackedBatch(
            token_ids=_tensor([piece.ids for piece in pieces]).to(device),
            positions=_tensor(positions).to(device),
            segments=segments,
            slots=None if is_single else _tensor(slots).to(device),
            logits_rows=None if len(rows) == row else torch.tensor(rows, device=device),
        )
    )
    return output.logits if wanted else None


def _tensor(parts: list[Int64s]) -> torch.Tensor:
    return torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts))
