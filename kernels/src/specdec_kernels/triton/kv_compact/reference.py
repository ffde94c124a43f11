"""Compaction of a paged cache in plain torch: the specification."""

from __future__ import annotations

import torch


def kv_compact_reference(
    key_pages: torch.Tensor, value_pages: torch.Tensor, first_slots: torch.Tensor, paths: torch.Tensor
) -> None:
    """Move the rows of `paths [B, P]` in all layers; see `kv_compact`."""
    is_move, steps = paths >= 0, torch.arange(paths.shape[1], device=paths.device)
    sources, destinations = (first_slots[:, None] + paths)[is_move], (first_slots[:, None] + steps)[is_move]
    block_size = key_pages.shape[2]
    for pages in (key_pages, value_pages):
        # A copy, so all rows are read before any is written.
        rows = pages[:, sources // block_size, sources % block_size]
        pages[:, destinations // block_size, destinations % block_size] = rows
