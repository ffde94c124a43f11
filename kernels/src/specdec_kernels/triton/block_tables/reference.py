"""Block tables in plain torch: the specification."""

from __future__ import annotations

import torch


def block_tables_reference(
    first_blocks: torch.Tensor, num_shared: torch.Tensor, shared_blocks: torch.Tensor, width: int
) -> torch.Tensor:
    """Return the blocks `[B, width]` of contexts in two runs; see `block_tables`."""
    columns = torch.arange(width, device=first_blocks.device)
    is_shared = columns < num_shared[:, None]
    return torch.where(is_shared, shared_blocks[:, None], first_blocks[:, None]) + columns
