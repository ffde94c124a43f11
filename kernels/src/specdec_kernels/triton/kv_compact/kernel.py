"""Compaction of a paged cache as a Triton kernel: a program per request, layer and part of a row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.kv_compact.config import heuristic, path_block
from specdec_kernels.triton.launch import LaunchConfig


@triton.jit
def _places(
    slots: tl.tensor,
    numbers: tl.tensor,
    page_stride: tl.tensor,
    slot_stride: tl.tensor,
    head_stride: tl.tensor,
    PAGE_SIZE: tl.constexpr,
    DIM: tl.constexpr,
) -> tl.tensor:
    """Return the offsets `[P, N]` in a layer of the elements `numbers [N]` of the rows at `slots [P]`."""
    rows = slots // PAGE_SIZE * page_stride + slots % PAGE_SIZE * slot_stride
    return rows[:, None] + (numbers // DIM * head_stride + numbers % DIM)[None, :]


@triton.jit(do_not_specialize=["path_stride", "path_len"])
def kv_compact_kernel(
    key_pages_ptr: tl.tensor,
    value_pages_ptr: tl.tensor,
    first_slots_ptr: tl.tensor,
    paths_ptr: tl.tensor,
    path_stride: tl.tensor,
    path_len: tl.tensor,
    key_layer_stride: tl.tensor,
    key_page_stride: tl.tensor,
    key_slot_stride: tl.tensor,
    key_head_stride: tl.tensor,
    value_layer_stride: tl.tensor,
    value_page_stride: tl.tensor,
    value_slot_stride: tl.tensor,
    value_head_stride: tl.tensor,
    NUM_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_PATH: tl.constexpr,
    BLOCK_NUMBERS: tl.constexpr,
) -> None:
    """Move a part of the rows of one request in one layer; the barrier delays writes until all reads are done."""
    request = tl.program_id(0)
    layer = tl.program_id(1).to(tl.int64)
    entries = tl.arange(0, BLOCK_PATH)
    nodes = tl.load(paths_ptr + request * path_stride + entries, mask=entries < path_len, other=-1)
    is_move = nodes >= 0
    first = tl.load(first_slots_ptr + request)
    sources = first + tl.maximum(nodes, 0)
    targets = first + entries
    numbers = tl.program_id(2) * BLOCK_NUMBERS + tl.arange(0, BLOCK_NUMBERS)

    key_ptr = key_pages_ptr + layer * key_layer_stride
    key_mask = is_move[:, None] & (numbers < NUM_HEADS * KEY_DIM)[None, :]
    place = _places(sources, numbers, key_page_stride, key_slot_stride, key_head_stride, PAGE_SIZE, KEY_DIM)
    keys = tl.load(key_ptr + place, mask=key_mask, other=0.0)
    value_ptr = value_pages_ptr + layer * value_layer_stride
    value_mask = is_move[:, None] & (numbers < NUM_HEADS * VALUE_DIM)[None, :]
    place = _places(
        sources, numbers, value_page_stride, value_slot_stride, value_head_stride, PAGE_SIZE, VALUE_DIM
    )
    values = tl.load(value_ptr + place, mask=value_mask, other=0.0)

    tl.debug_barrier()
    place = _places(targets, numbers, key_page_stride, key_slot_stride, key_head_stride, PAGE_SIZE, KEY_DIM)
    tl.store(key_ptr + place, keys, mask=key_mask)
    place = _places(
        targets, numbers, value_page_stride, value_slot_stride, value_head_stride, PAGE_SIZE, VALUE_DIM
    )
    tl.store(value_ptr + place, values, mask=value_mask)


def kv_compact_triton(
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    first_slots: torch.Tensor,
    paths: torch.Tensor,
    config: LaunchConfig | None,
) -> None:
    """Launch the kernel; writes the pages."""
    num_requests, path_len = paths.shape
    config = config or heuristic(path_len)
    num_layers, _, page_size, num_heads, key_dim = key_pages.shape
    value_dim = value_pages.shape[4]
    num_parts = triton.cdiv(num_heads * max(key_dim, value_dim), config.block)
    kv_compact_kernel[(num_requests, num_layers, num_parts)](
        key_pages,
        value_pages,
        first_slots,
        paths,
        paths.stride(0),
        path_len,
        *key_pages.stride()[:4],
        *value_pages.stride()[:4],
        NUM_HEADS=num_heads,
        KEY_DIM=key_dim,
        VALUE_DIM=value_dim,
        PAGE_SIZE=page_size,
        BLOCK_PATH=path_block(path_len),
        BLOCK_NUMBERS=config.block,
        num_warps=config.num_warps,
    )
