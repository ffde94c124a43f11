"""`kv_write`: writes the keys and values of a pass to a paged cache."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import check_pages, check_rows, check_tensor
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.kv_write.reference import kv_write_reference
from specdec_kernels.triton.launch import LaunchConfig

__all__ = ["kv_write"]


def kv_write(
    key: torch.Tensor,
    value: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    config: LaunchConfig | None = None,
) -> None:
    """Write rows of keys and values to their slots of a paged cache, in place.

    Slot s is in block `s // block_size` at offset `s % block_size`. A row with a negative slot is padding and is not
    written. Nothing is copied to the host, so the caller must keep slots within the cache and distinct.

    Args:
        key: `[T, Hkv, D]` floating point, unit stride along D.
        value: `[T, Hkv, Dv]` of the same type; Dv may differ from D.
        key_pages: `[num_blocks, block_size, Hkv, D]`, written; any strides, but unit stride along D.
        value_pages: `[num_blocks, block_size, Hkv, Dv]`, written; any strides, but unit stride along Dv.
        slot_mapping: `[T]` int64, -1 for padding rows.
        config: launch parameters of the Triton kernel; None uses the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    check_rows("key", key, (key.shape[0] if key.dim() else 0, "Hkv", "D"), like=key)
    num_rows, num_kv_heads, key_dim = key.shape
    check_rows("value", value, (num_rows, num_kv_heads, "Dv"), like=key)
    check_pages(key_pages, value_pages, (num_kv_heads, key_dim), value.shape[2], like=key)
    check_tensor("slot_mapping", slot_mapping, (num_rows,), (torch.int64,), key)
    if num_rows == 0:
        return
    if backend_for(key) is Backend.REFERENCE:
        kv_write_reference(key, value, key_pages, value_pages, slot_mapping)
        return
    from specdec_kernels.triton.kv_write.kernel import kv_write_triton  # imports Triton

    kv_write_triton(key, value, key_pages, value_pages, slot_mapping, config)
