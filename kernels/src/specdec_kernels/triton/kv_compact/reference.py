"""Compaction of a paged cache in plain torch: the specification."""

from __future__ import annotations

import torch


def kv_compact_reference(
    key_pages: torch.Tensor, value_pages: torch.Tensor, src_slots: torch.Tensor, dst_slots: torch.Tensor
) -> None:
    """Move the rows `src_slots [B, P]` to `dst_slots [B, P]` in all layers; see `kv_compact`."""
    is_move = (src_slots >= 0) & (dst_slots >= 0)
    sources, destinations = src_slots[is_move], dst_slots[is_move]
    block_size = key_pages.shape[2]
    for pages in (key_pages, value_pages):
        # A copy, so all rows are read before any is written.
        rows = pages[:, sources // block_size, sources % block_size]
        pages[:, destinations // block_size, destinations % block_size] = rows
