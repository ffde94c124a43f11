"""`kv_compact`: moves the cache rows of an accepted path to consecutive slots, as for a chain."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import check_rows, check_tensor, shown
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.kv_compact.config import LaunchConfig, candidates, heuristic
from specdec_kernels.triton.kv_compact.reference import kv_compact_reference
from specdec_kernels.triton.tuned import launch_config

__all__ = ["kv_compact"]


def kv_compact(
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    src_slots: torch.Tensor,
    dst_slots: torch.Tensor,
    *,
    config: LaunchConfig | None = None,
) -> None:
    """Move rows of a paged cache between slots, in all layers, in place.

    After verification of a tree, its accepted path is scattered among the rows of the pass. Entry i of the path moves to
    the slot of a chain's row i. All rows of a request are read before any is written, so sources and destinations may
    overlap. Destinations of a request must be distinct, and requests must not share slots; this holds if no two requests
    write to the same block. Sources that are not destinations keep their content. Slot s is in block `s // block_size` at
    offset `s % block_size`. Nothing is copied to the host.

    Args:
        key_pages: `[L, num_blocks, block_size, Hkv, D]` floating point, written; unit stride along D.
        value_pages: `[L, num_blocks, block_size, Hkv, Dv]` of the same type, written; unit stride along Dv.
        src_slots: `[B, P]` int64 slots of each request's path, padded with -1 anywhere.
        dst_slots: `[B, P]` int64 destination slots; an entry with -1 in either tensor moves nothing.
        config: launch parameters of the Triton kernel; None uses tuned ones or the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    sizes = ("L", "num_blocks", "block_size", "Hkv", "D")
    check_rows("key_pages", key_pages, sizes, like=key_pages)
    check_rows("value_pages", value_pages, (*key_pages.shape[:4], "Dv"), like=key_pages)
    if src_slots.dim() != 2:
        raise ValueError(f"src_slots must be int64 [B, P], not {shown(src_slots)}")
    for name, slots in (("src_slots", src_slots), ("dst_slots", dst_slots)):
        check_tensor(name, slots, src_slots.shape, (torch.int64,), key_pages)
    if src_slots.numel() == 0:
        return
    if backend_for(key_pages) is Backend.REFERENCE:
        kv_compact_reference(key_pages, value_pages, src_slots, dst_slots)
        return
    from specdec_kernels.triton.kv_compact.kernel import kv_compact_triton  # imports Triton

    chosen = config or launch_config(
        "kv_compact", heuristic, candidates, key_pages.device, src_slots.shape[1]
    )
    kv_compact_triton(key_pages, value_pages, src_slots, dst_slots, chosen)
