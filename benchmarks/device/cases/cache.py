"""Operations on the paged KV cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from device.kernel_case import KernelCase, Problem, num_bytes
from device.sizes import Sizes
from specdec_kernels.triton import block_tables, kv_compact, kv_write, paged_attention, rope_kv_write
from specdec_kernels.triton.paged_attention.config import LaunchConfig

_LAYERS = 4
"""Layers of the compacted cache; all 32 would take long to create and would not change the result."""


def _pages(sizes: Sizes, *front: int) -> torch.Tensor:
    shape = (*front, sizes.num_blocks, sizes.block_size, sizes.shape.num_kv_heads, sizes.head_dim)
    return sizes.randn(*shape)


def _last_slots(sizes: Sizes) -> torch.Tensor:
    """Return `[T]`: the slots of the last rows of each request."""
    per_request = sizes.num_blocks // sizes.batch_size * sizes.block_size
    ends = (sizes.arange(sizes.batch_size) * per_request + sizes.context)[:, None]
    return (ends - 1 - sizes.k + sizes.arange(1 + sizes.k)).flatten()


def make_block_tables(sizes: Sizes) -> Problem:
    """The tables of a pass of which half of each context is shared."""
    width = sizes.num_blocks // sizes.batch_size
    firsts = sizes.arange(sizes.batch_size) * width
    halves = torch.full_like(firsts, width // 2)
    out = firsts.new_empty(sizes.batch_size, width)

    def call() -> Sequence[torch.Tensor]:
        return (block_tables(firsts, halves, halves, width, out=out),)

    return Problem(call, num_bytes(firsts, halves, halves, out))


def make_kv_write(sizes: Sizes) -> Problem:
    """Keys and values of one pass, in one layer."""
    heads = sizes.num_rows, sizes.shape.num_kv_heads, sizes.head_dim
    key, value, slots = sizes.randn(*heads), sizes.randn(*heads), _last_slots(sizes)
    pages = _pages(sizes), _pages(sizes)

    def call() -> Sequence[torch.Tensor]:
        kv_write(key, value, *pages, slots)
        return pages

    return Problem(call, 2 * num_bytes(key, value) + num_bytes(slots))


def make_kv_compact(sizes: Sizes) -> Problem:
    """The accepted path of a tree: every second row moves forward."""
    pages = _pages(sizes, _LAYERS), _pages(sizes, _LAYERS)
    slots = _last_slots(sizes).view(sizes.batch_size, -1)
    paths = (slots[:, 1::2] - slots[:, :1]).contiguous()
    first_slots = slots[:, 0].contiguous()

    def call() -> Sequence[torch.Tensor]:
        kv_compact(*pages, first_slots, paths)
        return pages

    row = 2 * _LAYERS * sizes.shape.num_kv_heads * sizes.head_dim * sizes.dtype.itemsize
    return Problem(call, 2 * paths.numel() * row + num_bytes(first_slots, paths))


def make_rope_kv_write(sizes: Sizes) -> Problem:
    """Queries and keys of one pass, rotated, in one layer."""
    shape = sizes.shape
    query = sizes.randn(sizes.num_rows, shape.num_heads, sizes.head_dim)
    heads = sizes.num_rows, shape.num_kv_heads, sizes.head_dim
    key, value, slots = sizes.randn(*heads), sizes.randn(*heads), _last_slots(sizes)
    angles = sizes.randn(sizes.num_rows, sizes.head_dim // 2, dtype=torch.float32)
    cos, sin, positions = angles.cos(), angles.sin(), sizes.arange(sizes.num_rows)
    pages = _pages(sizes), _pages(sizes)

    def call() -> Sequence[torch.Tensor]:
        return rope_kv_write(query, key, value, cos, sin, *pages, slots, positions=positions), *pages

    moved = 2 * num_bytes(query, key, value) + num_bytes(cos, sin, slots)
    return Problem(call, moved, tolerance=_rounding(sizes.dtype))


def make_paged_attention(sizes: Sizes, config: LaunchConfig | None = None) -> Problem:
    """Attention of every request's rows over its context; `config` is the operation's."""
    shape, size = sizes.shape, sizes.batch_size
    query = sizes.randn(sizes.num_rows, shape.num_heads, sizes.head_dim)
    keys, values = _pages(sizes), _pages(sizes)
    tables = torch.randperm(sizes.num_blocks, device=sizes.device).view(size, -1)
    starts = sizes.arange(size + 1) * (1 + sizes.k)
    lengths = torch.full((size,), sizes.context, device=sizes.device)

    def call() -> Sequence[torch.Tensor]:
        scale = sizes.head_dim**-0.5
        return (paged_attention(query, keys, values, tables, starts, lengths, scale=scale, config=config),)

    row = shape.num_kv_heads * sizes.head_dim * sizes.dtype.itemsize
    moved = 2 * num_bytes(query) + 2 * size * sizes.context * row + num_bytes(tables, starts, lengths)
    return Problem(call, moved, tolerance=2 * _rounding(sizes.dtype))


def _rounding(dtype: torch.dtype) -> float:
    return 2 * torch.finfo(dtype).eps


CASES = (
    KernelCase("block_tables", "one pass", make_block_tables),
    KernelCase("kv_write", "one layer", make_kv_write),
    KernelCase("kv_compact", f"{_LAYERS} layers", make_kv_compact),
    KernelCase("rope_kv_write", "one layer", make_rope_kv_write),
    KernelCase("paged_attention", "one layer", make_paged_attention),
)
