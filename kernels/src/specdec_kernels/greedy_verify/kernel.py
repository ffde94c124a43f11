"""Greedy verification as two Triton kernels: the best id of every tile of a row, then a scan per request."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.greedy_verify.config import LaunchConfig


@triton.jit
def tile_best_kernel(
    logits_ptr: tl.tensor,
    best_value_ptr: tl.tensor,
    best_id_ptr: tl.tensor,
    row_stride: tl.tensor,
    vocab_size: tl.tensor,
    NUM_TILES: tl.constexpr,
    BLOCK_V: tl.constexpr,
) -> None:
    """Write the greatest logit of one tile of one row, and its lowest id, to `[R, NUM_TILES]`."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    ids = tile * BLOCK_V + tl.arange(0, BLOCK_V)
    logits = tl.load(logits_ptr + row * row_stride + ids, mask=ids < vocab_size, other=-float("inf"))
    logits = logits.to(best_value_ptr.dtype.element_ty)
    logits = tl.where(logits != logits, -float("inf"), logits)  # a NaN never wins
    value, index = tl.max(logits, 0, return_indices=True, return_indices_tie_break_left=True)
    tl.store(best_value_ptr + row * NUM_TILES + tile, value)
    tl.store(best_id_ptr + row * NUM_TILES + tile, tile * BLOCK_V + index)


@triton.jit
def verify_chain_kernel(
    best_value_ptr: tl.tensor,
    best_id_ptr: tl.tensor,
    draft_ptr: tl.tensor,
    draft_stride: tl.tensor,
    row_starts_ptr: tl.tensor,
    num_nodes_ptr: tl.tensor,
    num_accepted_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    token_ids_stride: tl.tensor,
    WIDTH: tl.constexpr,
    NUM_TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
) -> None:
    """Walk one request's chain: emit the best id at every node up to and including the first mismatch."""
    request = tl.program_id(0).to(tl.int64)
    row_start = tl.load(row_starts_ptr + request).to(tl.int64)
    num_nodes = tl.load(num_nodes_ptr + request)
    tiles = tl.arange(0, BLOCK_TILES)
    in_row = tiles < NUM_TILES
    num_accepted = tl.full((), 0, tl.int64)
    goes_on = tl.full((), 1, tl.int1)
    for depth in range(WIDTH + 1):
        offsets = (row_start + depth) * NUM_TILES + tiles
        is_read = in_row & goes_on
        values = tl.load(best_value_ptr + offsets, mask=is_read, other=-float("inf"))
        ids = tl.load(best_id_ptr + offsets, mask=is_read, other=0)
        best_tile = tl.max(values, 0, return_indices=True, return_indices_tie_break_left=True)[1]
        best = tl.sum(tl.where(tiles == best_tile, ids, 0), 0).to(tl.int64)
        tl.store(token_ids_ptr + request * token_ids_stride + depth, tl.where(goes_on, best, -1))
        has_node = goes_on & (depth < num_nodes)
        drafted = tl.load(draft_ptr + request * draft_stride + depth, mask=has_node, other=-1)
        goes_on = has_node & (drafted == best)
        num_accepted += goes_on.to(tl.int64)
    tl.store(num_accepted_ptr + request, num_accepted)


def greedy_verify_triton(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    num_accepted: torch.Tensor,
    token_ids: torch.Tensor,
    config: LaunchConfig,
) -> None:
    """Launch both kernels; writes `num_accepted [B]` and `token_ids [B, K + 1]`."""
    num_rows, vocab_size = logits.shape
    num_requests, width = draft_token_ids.shape
    num_tiles = config.num_tiles(vocab_size)
    exact = torch.float64 if logits.dtype is torch.float64 else torch.float32
    best_values = torch.empty((num_rows, num_tiles), dtype=exact, device=logits.device)
    best_ids = torch.empty((num_rows, num_tiles), dtype=torch.int32, device=logits.device)
    tile_best_kernel[(num_rows, num_tiles)](
        logits,
        best_values,
        best_ids,
        logits.stride(0),
        vocab_size,
        NUM_TILES=num_tiles,
        BLOCK_V=config.block_v,
        num_warps=config.num_warps,
    )
    verify_chain_kernel[(num_requests,)](
        best_values,
        best_ids,
        draft_token_ids,
        draft_token_ids.stride(0),
        row_starts,
        num_nodes,
        num_accepted,
        token_ids,
        token_ids.stride(0),
        WIDTH=width,
        NUM_TILES=num_tiles,
        BLOCK_TILES=triton.next_power_of_2(num_tiles),
        num_warps=1,
    )
