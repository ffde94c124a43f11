"""New tokens of several requests, as draft loops take them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import numpy as np
import torch

from specdec.interfaces import ProposeBatch
from specdec_runtime.drafting.passes import RowChunk
from specdec_runtime.interfaces.chain import NewRows


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
