"""Writing to a paged cache in plain torch: the specification."""

from __future__ import annotations

import torch


def kv_write_reference(
    key: torch.Tensor,
    value: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write `key [T, Hkv, D]` and `value [T, Hkv, Dv]` to the pages; see `kv_write`."""
    is_row = slot_mapping >= 0
    slots = slot_mapping[is_row]
    blocks, offsets = slots // key_pages.shape[1], slots % key_pages.shape[1]
    key_pages[blocks, offsets] = key[is_row]
    value_pages[blocks, offsets] = value[is_row]
