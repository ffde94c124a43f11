"""The numbers of a pass behind a verdict in plain torch: the specification."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from specdec_kernels.triton.move_rows import PassRows


def move_rows_reference(rows: PassRows, memory: torch.Tensor) -> None:
    """Move requests in place; see `move_rows`."""
    counts_at, tokens_at, num_columns, *growing = rows.verdict.tolist()
    starts = rows.query_starts.tolist()
    for request, row in enumerate(rows.verdict_rows.tolist()):
        if row < 0:
            continue
        count, first = int(memory[counts_at + row]), starts[request]
        own = slice(first, starts[request + 1])
        rows.positions[own] += count
        rows.slots[own] += count
        rows.context_lens[request] += count
        rows.sources[first] = tokens_at + row * num_columns + count
        for place in growing:
            if place >= 0:
                memory[place + request] += count
