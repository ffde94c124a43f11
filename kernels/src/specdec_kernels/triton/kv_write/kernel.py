"""Writing to a paged cache as a Triton kernel: a program per row and block of its heads."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.launch import LaunchConfig, power_of_two

_NUMBERS_PER_PROGRAM = 2048


@triton.jit
def kv_write_kernel(
    key_ptr: tl.tensor,
    value_ptr: tl.tensor,
    key_pages_ptr: tl.tensor,
    value_pages_ptr: tl.tensor,
    slot_mapping_ptr: tl.tensor,
    key_row_stride: tl.tensor,
    key_head_stride: tl.tensor,
    value_row_stride: tl.tensor,
    value_head_stride: tl.tensor,
    key_page_stride: tl.tensor,
    key_slot_stride: tl.tensor,
    key_page_head_stride: tl.tensor,
    value_page_stride: tl.tensor,
    value_slot_stride: tl.tensor,
    value_page_head_stride: tl.tensor,
    NUM_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_KEY: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
) -> None:
    """Copy `BLOCK_HEADS` heads of the keys `[T, Hkv, D]` and values `[T, Hkv, Dv]` of one row to its slot."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping_ptr + row)
    if slot < 0:
        return
    page, offset = slot // PAGE_SIZE, slot % PAGE_SIZE
    heads = tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)[:, None]

    dims = tl.arange(0, BLOCK_KEY)[None, :]
    mask = (heads < NUM_HEADS) & (dims < KEY_DIM)
    key = tl.load(key_ptr + row * key_row_stride + heads * key_head_stride + dims, mask=mask, other=0.0)
    place = key_pages_ptr + page * key_page_stride + offset * key_slot_stride
    tl.store(place + heads * key_page_head_stride + dims, key, mask=mask)

    dims = tl.arange(0, BLOCK_VALUE)[None, :]
    mask = (heads < NUM_HEADS) & (dims < VALUE_DIM)
    value = tl.load(
        value_ptr + row * value_row_stride + heads * value_head_stride + dims, mask=mask, other=0.0
    )
    place = value_pages_ptr + page * value_page_stride + offset * value_slot_stride
    tl.store(place + heads * value_page_head_stride + dims, value, mask=mask)


def heuristic(num_kv_heads: int, head_dim: int) -> LaunchConfig:
    """Return how many heads make a program copy about 2048 elements of keys and as many of values."""
    fitting = max(1, _NUMBERS_PER_PROGRAM // power_of_two(head_dim))
    block = power_of_two(num_kv_heads, most=fitting)
    return LaunchConfig(block, num_warps=4 if block * head_dim >= 1024 else 1)


def kv_write_triton(
    key: torch.Tensor,
    value: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    slot_mapping: torch.Tensor,
    config: LaunchConfig | None,
) -> None:
    """Launch the kernel; writes the pages."""
    num_rows, num_heads, key_dim = key.shape
    value_dim = value.shape[2]
    config = config or heuristic(num_heads, max(key_dim, value_dim))
    kv_write_kernel[(num_rows, triton.cdiv(num_heads, config.block))](
        key,
        value,
        key_pages,
        value_pages,
        slot_mapping,
        key.stride(0),
        key.stride(1),
        value.stride(0),
        value.stride(1),
        key_pages.stride(0),
        key_pages.stride(1),
        key_pages.stride(2),
        value_pages.stride(0),
        value_pages.stride(1),
        value_pages.stride(2),
        NUM_HEADS=num_heads,
        KEY_DIM=key_dim,
        VALUE_DIM=value_dim,
        PAGE_SIZE=key_pages.shape[1],
        BLOCK_HEADS=config.block,
        BLOCK_KEY=triton.next_power_of_2(key_dim),
        BLOCK_VALUE=triton.next_power_of_2(value_dim),
        num_warps=config.num_warps,
    )
