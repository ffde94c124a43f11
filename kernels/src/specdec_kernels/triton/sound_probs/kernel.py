"""Own copies of q as one Triton kernel: a tile per program; the last one of a row knows whether it is a distribution."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.last_program import arrival_counts, is_last_program
from specdec_kernels.triton.sound_probs.config import LaunchConfig

_BLOCK_TILES = 128


@triton.jit(do_not_specialize=["ids_stride", "probs_stride", "row_stride", "num_ids", "num_tiles", "width"])
def sound_probs_kernel(
    ids_ptr: tl.tensor,
    ids_stride: tl.tensor,
    probs_ptr: tl.tensor,
    probs_stride: tl.tensor,
    row_stride: tl.tensor,
    num_ids: tl.tensor,
    tolerance: tl.tensor,
    sums_ptr: tl.tensor,
    num_arrived_ptr: tl.tensor,
    own_ids_ptr: tl.tensor,
    own_ptr: tl.tensor,
    num_tiles: tl.tensor,
    width: tl.tensor,
    BLOCK_TILES: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """Copy one tile of a row; the last program of a row writes its token id, and zeros over what is no distribution."""
    program = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    request = program // (width + 1)
    place = program % (width + 1)
    ids = tile * BLOCK_V + tl.arange(0, BLOCK_V)
    row_ptr = probs_ptr + request * probs_stride + place * row_stride
    probs = tl.load(row_ptr + ids, mask=ids < num_ids, other=0.0)
    probs = tl.where(probs < 0.0, 0.0, probs)  # NaN stays
    tl.store(own_ptr + program * num_ids + ids, probs, mask=ids < num_ids)
    tl.store(sums_ptr + program * num_tiles + tile, tl.sum(probs, 0))
    if is_last_program(num_arrived_ptr + program, num_tiles):
        total = tl.zeros((BLOCK_TILES,), own_ptr.dtype.element_ty)
        for start in range(0, num_tiles, BLOCK_TILES):
            tiles = start + tl.arange(0, BLOCK_TILES)
            total += tl.load(sums_ptr + program * num_tiles + tiles, mask=tiles < num_tiles, other=0.0)
        is_normal = tl.abs(tl.sum(total, 0) - 1.0) <= tolerance
        if place < width:
            token = tl.load(ids_ptr + request * ids_stride + place)
            tl.store(own_ids_ptr + request * width + place, tl.where(is_normal, token, -1))
        if not is_normal:
            for other in range(num_tiles):
                ids = other * BLOCK_V + tl.arange(0, BLOCK_V)
                tl.store(own_ptr + program * num_ids + ids, tl.zeros_like(probs), mask=ids < num_ids)


def sound_probs_triton(
    token_ids: torch.Tensor,
    probs: torch.Tensor,
    tolerance: float,
    own_ids: torch.Tensor,
    own: torch.Tensor,
    config: LaunchConfig,
) -> None:
    """Launch the kernel; writes `own_ids [B, N]` and `own [B, N + 1, V]`."""
    size, num_rows, num_ids = probs.shape
    num_tiles = config.num_tiles(num_ids)
    sums = own.new_empty((size, num_rows, num_tiles))
    sound_probs_kernel[(size * num_rows, num_tiles)](
        token_ids,
        token_ids.stride(0),
        probs,
        probs.stride(0),
        probs.stride(1),
        num_ids,
        tolerance,
        sums,
        arrival_counts(size * num_rows, probs.device),
        own_ids,
        own,
        num_tiles,
        num_rows - 1,
        BLOCK_TILES=_BLOCK_TILES,
        BLOCK_V=config.block_v,
        num_warps=config.num_warps,
    )
