"""The rows of emitted tokens in plain torch: the specification."""

from __future__ import annotations

import torch


def accepted_rows_reference(
    states: torch.Tensor, row_starts: torch.Tensor, num_accepted: torch.Tensor, out: torch.Tensor
) -> None:
    """Write the rows of the tokens that are emitted; see `accepted_rows`."""
    rows = [
        row
        for start, count in zip(row_starts.tolist(), num_accepted.tolist(), strict=True)
        for row in range(start, start + min(count, out.shape[1]) + 1)
    ]
    for place, row in enumerate(rows[: out.shape[1]]):
        if 0 <= row < states.shape[1]:
            out[:, place] = states[:, row]
