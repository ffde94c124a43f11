"""Norms of heads, rotary embedding and cache write as a Triton kernel: a program per row and KV head."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specdec_kernels.triton.rope_kv_write.reference import HeadNorms


@triton.jit
def _scaled(
    x: tl.tensor,
    scale: tl.tensor,
    weight_ptr: tl.tensor,
    dims: tl.tensor,
    mask: tl.tensor,
    dtype: tl.constexpr,
) -> tl.tensor:
    """Return the numbers of normed heads, rounded as the norm of its own would round them."""
    weight = tl.load(weight_ptr + dims, mask=mask, other=0.0).to(tl.float32)
    return (x * scale * weight).to(dtype).to(tl.float32)


@triton.jit
def _rotate(
    source: tl.tensor,
    target: tl.tensor,
    is_head: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    weight_ptr: tl.tensor,
    EPSILON: tl.constexpr,
    HALF: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr,
) -> None:
    """Norm the heads that begin at `source [G, 1]`, if there is a weight, and rotate them to `target [G, 1]`.

    All of a head is read before any of it is written.
    """
    pairs = tl.arange(0, BLOCK_HALF)[None, :]
    mask = is_head & (pairs < HALF)
    first, second = pairs, pairs + HALF
    a = tl.load(source + first, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(source + second, mask=mask, other=0.0).to(tl.float32)
    dtype = target.dtype.element_ty
    if DIM > 2 * HALF:
        dims = 2 * HALF + tl.arange(0, BLOCK_REST)[None, :]
        in_rest = is_head & (dims < DIM)
        rest = tl.load(source + dims, mask=in_rest, other=0.0).to(tl.float32)
    if weight_ptr is not None:
        total = tl.sum(a * a + b * b, 1)
        if DIM > 2 * HALF:
            total += tl.sum(rest * rest, 1)
        scale = (1.0 / tl.sqrt_rn(total / DIM + EPSILON))[:, None]
        a = _scaled(a, scale, weight_ptr, first, pairs < HALF, dtype)
        b = _scaled(b, scale, weight_ptr, second, pairs < HALF, dtype)
        if DIM > 2 * HALF:
            rest = _scaled(rest, scale, weight_ptr, dims, dims < DIM, dtype)
    tl.debug_barrier()
    tl.store(target + first, (a * cos - b * sin).to(dtype), mask=mask)
    tl.store(target + second, (b * cos + a * sin).to(dtype), mask=mask)
    if DIM > 2 * HALF:
        tl.store(target + dims, rest.to(dtype), mask=in_rest)


@triton.jit
def rope_kv_write_kernel(
    query_ptr: tl.tensor,
    key_ptr: tl.tensor,
    value_ptr: tl.tensor,
    cos_ptr: tl.tensor,
    sin_ptr: tl.tensor,
    key_pages_ptr: tl.tensor,
    value_pages_ptr: tl.tensor,
    slot_mapping_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    query_weight_ptr: tl.tensor,
    key_weight_ptr: tl.tensor,
    out_ptr: tl.tensor,
    query_row_stride: tl.tensor,
    query_head_stride: tl.tensor,
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
    out_row_stride: tl.tensor,
    out_head_stride: tl.tensor,
    EPSILON: tl.constexpr,
    GROUP: tl.constexpr,
    HALF: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_GROUP: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
) -> None:
    """Norm and rotate the query heads of one KV head of one row, and its key; write key and value to the row's slot."""
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    position = tl.load(positions_ptr + row).to(tl.int64)
    pairs = tl.arange(0, BLOCK_HALF)[None, :]
    cos = tl.load(cos_ptr + position * HALF + pairs, mask=pairs < HALF, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + position * HALF + pairs, mask=pairs < HALF, other=0.0).to(tl.float32)

    members = tl.arange(0, BLOCK_GROUP)[:, None]
    heads = kv_head * GROUP + members
    source = query_ptr + row * query_row_stride + heads * query_head_stride
    target = out_ptr + row * out_row_stride + heads * out_head_stride
    _rotate(
        source, target, members < GROUP, cos, sin, query_weight_ptr, EPSILON, HALF, KEY_DIM, BLOCK_HALF, BLOCK_REST
    )  # fmt: skip

    slot = tl.load(slot_mapping_ptr + row)
    if slot < 0:
        return
    page, offset = slot // PAGE_SIZE, slot % PAGE_SIZE
    only = tl.arange(0, 1)[:, None]
    source = key_ptr + row * key_row_stride + kv_head * key_head_stride + only
    target = (
        key_pages_ptr + page * key_page_stride + offset * key_slot_stride + kv_head * key_page_head_stride
    )
    _rotate(
        source, target + only, only == 0, cos, sin, key_weight_ptr, EPSILON, HALF, KEY_DIM, BLOCK_HALF, BLOCK_REST
    )  # fmt: skip
    dims = tl.arange(0, BLOCK_VALUE)
    is_dim = dims < VALUE_DIM
    value = tl.load(
        value_ptr + row * value_row_stride + kv_head * value_head_stride + dims, mask=is_dim, other=0.0
    )
    place = page * value_page_stride + offset * value_slot_stride + kv_head * value_page_head_stride
    tl.store(value_pages_ptr + place + dims, value, mask=is_dim)


def heuristic(group: int, head_dim: int) -> int:
    """Return the warps of a program for `group` query heads of `head_dim` elements per KV head."""
    return 1 if group * head_dim <= 256 else 4 if group * head_dim <= 4096 else 8


def rope_kv_write_triton(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    slot_mapping: torch.Tensor,
    positions: torch.Tensor,
    norms: HeadNorms | None,
    out: torch.Tensor,
    num_warps: int | None,
) -> None:
    """Launch the kernel; writes the pages and `out [T, H, D]`."""
    num_rows, num_heads, key_dim = query.shape
    num_kv_heads, value_dim = value.shape[1:]
    group, half = num_heads // num_kv_heads, cos.shape[1]
    rope_kv_write_kernel[(num_rows, num_kv_heads)](
        query,
        key,
        value,
        cos,
        sin,
        key_pages,
        value_pages,
        slot_mapping,
        positions,
        None if norms is None else norms.query,
        None if norms is None else norms.key,
        out,
        *query.stride()[:2],
        *key.stride()[:2],
        *value.stride()[:2],
        *key_pages.stride()[:3],
        *value_pages.stride()[:3],
        *out.stride()[:2],
        EPSILON=0.0 if norms is None else norms.epsilon,
        GROUP=group,
        HALF=half,
        KEY_DIM=key_dim,
        VALUE_DIM=value_dim,
        PAGE_SIZE=key_pages.shape[1],
        BLOCK_GROUP=triton.next_power_of_2(group),
        BLOCK_HALF=triton.next_power_of_2(half),
        BLOCK_REST=triton.next_power_of_2(max(1, key_dim - 2 * half)),
        BLOCK_VALUE=triton.next_power_of_2(value_dim),
        num_warps=num_warps or heuristic(group, key_dim),
    )
