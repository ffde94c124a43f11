"""Packed passes of a draft model or head over pieces of several requests, and their new tokens as draft loops take them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch

from specdec.interfaces import ProposeBatch
from specdec_runtime.interfaces.chain import NewRows
from specdec_runtime.interfaces.forward import HostRows, PackedBatch, Segment
from specdec_runtime.interfaces.runner import Runner

Int64s = npt.NDArray[np.int64]
CachedRows = tuple[Sequence[int], Sequence[int]]
"""For each of several requests, the cache slot of position 0 and the number of rows in the cache."""
MAX_PASS_ROWS = 2048
"""Maximum rows of one pass; further rows go into further passes."""


@dataclass(slots=True)
class RowChunk:
    """Rows of one request that a pass appends to those in the cache."""

    ids: Int64s
    """`[n]` the draft's ids."""
    first_slot: int
    num_cached: int
    num_logits: int
    """Number of rows, the last ones, that need logits."""
    features: torch.Tensor | None = None
    """`[n, F]` for heads."""
    positions: Int64s | None = None
    """`[n]`; None for the positions that follow the cached rows."""
    tree_mask: torch.Tensor | None = None
    """`[n, num_branched + n]`, see `Segment`; None for a chain."""
    num_branched: int = 0
    owner: str | None = None
    """The request; see `Segment.owner`."""
    num_drafted: int = 0
    """Number of drafted rows, the last ones."""

    def part(self, start: int, end: int, *, is_last: bool) -> RowChunk:
        """Return some of the rows of a chain; only the last part has logits."""
        return replace(
            self,
            ids=self.ids[start:end],
            num_cached=self.num_cached + start,
            num_logits=self.num_logits if is_last else 0,
            num_drafted=self.num_drafted if is_last else 0,
            features=None if self.features is None else self.features[start:end],
            positions=None if self.positions is None else self.positions[start:end],
        )


def run(
    runner: Runner, row_chunks: Sequence[RowChunk], stage: int = 0
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run pieces in as many passes as they need.

    Args:
        runner: the runner of the model or head.
        row_chunks: the pieces, with at least one row in total.
        stage: stage of a head.

    Returns:
        logits `[R, Vd]` of the rows that need them, in order, and for heads the carry `[T, F]` of all rows.
    """
    outputs = [_run(runner, portion, stage) for portion in _portions(row_chunks)]
    logits = [part for part, _ in outputs if part is not None]
    carries = [carry for _, carry in outputs if carry is not None]
    carry = carries[0] if len(carries) == 1 else torch.cat(carries) if carries else None
    if not logits:
        return torch.empty(0, 0, device=runner.device), carry
    return logits[0] if len(logits) == 1 else torch.cat(logits), carry


def _portions(row_chunks: Sequence[RowChunk]) -> Iterator[list[RowChunk]]:
    """Yield the pieces of each pass; a long piece is split over several passes."""
    if sum(len(row_chunk.ids) for row_chunk in row_chunks) <= MAX_PASS_ROWS:
        yield list(row_chunks)
        return
    portion: list[RowChunk] = []
    room = MAX_PASS_ROWS
    for row_chunk in row_chunks:
        start, size = 0, len(row_chunk.ids)
        while start < size:
            # The rows that need logits stay in one pass.
            count = min(size - start, room)
            if start + count < size:
                count = min(count, size - start - row_chunk.num_logits)
            if count > 0:
                portion.append(row_chunk.part(start, start + count, is_last=start + count == size))
                start, room = start + count, room - count
            if start < size or room == 0:
                yield portion
                portion, room = [], MAX_PASS_ROWS
    if portion:
        yield portion


def _run(
    runner: Runner, row_chunks: list[RowChunk], stage: int
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    device = runner.device
    segments: list[Segment] = []
    positions: list[Int64s] = []
    slots: list[Int64s] = []
    wanted: list[int] = []
    row = 0
    for row_chunk in row_chunks:
        count = len(row_chunk.ids)
        places = np.arange(row_chunk.num_cached, row_chunk.num_cached + count)
        at = places if row_chunk.positions is None else row_chunk.positions
        depths = None
        if row_chunk.tree_mask is not None:
            depths = torch.from_numpy(at - (row_chunk.num_cached - row_chunk.num_branched))
        segments.append(
            Segment(
                row,
                count,
                row_chunk.first_slot,
                row_chunk.num_cached,
                row_chunk.tree_mask,
                depths,
                row_chunk.num_branched,
                row_chunk.owner,
                row_chunk.num_drafted,
            )
        )
        positions.append(at)
        slots.append(places + row_chunk.first_slot)
        row += count
        wanted.extend(range(row - row_chunk.num_logits, row))
    # Request the logits of one row if none are needed: a pass always runs the output projection.
    rows = wanted or [0]
    features = [row_chunk.features for row_chunk in row_chunks if row_chunk.features is not None]
    output = runner.forward(
        PackedBatch.of_rows(
            HostRows(
                token_ids=np.concatenate([row_chunk.ids for row_chunk in row_chunks]),
                positions=np.concatenate(positions),
                slots=np.concatenate(slots),
                logits_rows=None if len(rows) == row else np.array(rows),
            ),
            segments,
            device,
        ),
        None if not features else features[0] if len(features) == 1 else torch.cat(features),
        stage,
    )
    return output.logits if wanted else None, output.hidden_states


def new_rows(
    batch: ProposeBatch, row_chunks: Mapping[int, RowChunk], states: tuple[torch.Tensor, ...] = ()
) -> NewRows:
    """Return the new tokens of pieces, by row of a batch.

    Args:
        batch: the step's batch.
        row_chunks: the pieces, in the order of the rows.
        states: the target's states `[T, H]` of the batch, of every kind that the loop takes.
    """
    return NewRows(
        np.concatenate([row_chunk.ids for row_chunk in row_chunks.values()]),
        [len(row_chunk.ids) for row_chunk in row_chunks.values()],
        new_states(batch, row_chunks, states),
    )


def new_states(
    batch: ProposeBatch, row_chunks: Mapping[int, RowChunk], states: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, ...]:
    """Return the states `[n, H]` that predicted the new tokens of pieces; see `new_rows`."""
    ends = list(accumulate(batch.counts))
    spans = [(ends[row] - len(p.ids) + p.num_drafted, ends[row]) for row, p in row_chunks.items()]
    if not states or sum(end - start for start, end in spans) == states[0].shape[0]:
        return states
    return tuple(torch.cat([kind[start:end] for start, end in spans]) for kind in states)
