"""`kv_compact`: moves the cache rows of an accepted path to consecutive slots, as for a chain."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import check_rows, check_tensor, shown
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.kv_compact.reference import kv_compact_reference
from specdec_kernels.triton.launch import LaunchConfig

__all__ = ["kv_compact"]


def kv_compact(
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    first_slots: torch.Tensor,
    paths: torch.Tensor,
    *,
    config: LaunchConfig | None = None,
) -> None:
    """Move rows of a paged cache between slots, in all layers, in place.

    After verification of a tree, its accepted path is scattered among the rows of the pass. Entry i of the path moves to
    the slot of a chain's row i. All rows of a request are read before any is written, so sources and destinations may
    overlap. Requests must not share slots. Sources that are not destinations keep their content. Slot s is in block
    `s // block_size` at offset `s % block_size`. Nothing is copied to the host.

    Args:
        key_pages: `[L, num_blocks, block_size, Hkv, D]` floating point, written; unit stride along D.
        value_pages: `[L, num_blocks, block_size, Hkv, Dv]` of the same type, written; unit stride along Dv.
        first_slots: `[B]` int64 slot of each request's first node.
        paths: `[B, P]` int64 nodes of each path, unit stride along P, padded with -1, which moves nothing.
        config: launch parameters of the Triton kernel; None uses the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    sizes = ("L", "num_blocks", "block_size", "Hkv", "D")
    check_rows("key_pages", key_pages, sizes, like=key_pages)
    check_rows("value_pages", value_pages, (*key_pages.shape[:4], "Dv"), like=key_pages)
    if paths.dim() != 2:
        raise ValueError(f"paths must be int64 [B, P], not {shown(paths)}")
    check_tensor("paths", paths, paths.shape, (torch.int64,), key_pages, is_row_strided=True)
    check_tensor("first_slots", first_slots, paths.shape[:1], (torch.int64,), key_pages)
    if paths.numel() == 0:
        return
    if backend_for(key_pages) is Backend.REFERENCE:
        kv_compact_reference(key_pages, value_pages, first_slots, paths)
        return
    from specdec_kernels.triton.kv_compact.kernel import kv_compact_triton  # imports Triton

    kv_compact_triton(key_pages, value_pages, first_slots, paths, config)
