"""The rows of emitted tokens in plain torch: the specification."""

from __future__ import annotations

import torch


def accepted_rows_reference(
    states: torch.Tensor,
    row_starts: torch.Tensor,
    num_accepted: torch.Tensor,
    nodes: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Write the rows of the tokens that are emitted; see `accepted_rows`."""
    rows = list[int]()
    for request, (start, count) in enumerate(zip(row_starts.tolist(), num_accepted.tolist(), strict=True)):
        if count >= 0:
            path = range(min(count, out.shape[1])) if nodes is None else nodes[request, :count].tolist()
            rows += [start, *(start + 1 + node for node in path)]
    for place, row in enumerate(rows[: out.shape[1]]):
        if 0 <= row < states.shape[1]:
            out[:, place] = states[:, row]
