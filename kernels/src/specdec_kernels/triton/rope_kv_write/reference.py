"""Norms of heads, rotary embedding and cache write in plain torch: the specification."""

from __future__ import annotations

from typing import NamedTuple

import torch

from specdec_kernels.triton.kv_write.reference import kv_write_reference
from specdec_kernels.triton.rms_norm.reference import rms_norm_reference


class HeadNorms(NamedTuple):
    """Root-mean-square norms of the heads of queries and keys, computed as `rms_norm` does."""

    query: torch.Tensor
    """`[D]` weight."""
    key: torch.Tensor
    """`[D]` weight."""
    epsilon: float


def rope_kv_write_reference(
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
) -> torch.Tensor:
    """Write the pages and return the rotated queries `[T, H, D]`; see `rope_kv_write`."""
    if norms is not None:
        query, key = _normed(query, norms.query, norms.epsilon), _normed(key, norms.key, norms.epsilon)
    angles = cos[positions.long(), None].float(), sin[positions.long(), None].float()  # [T, 1, R / 2]
    kv_write_reference(_rotated(key, *angles), value, key_pages, value_pages, slot_mapping)
    return _rotated(query, *angles)


def _normed(heads: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    flat = heads.reshape(-1, heads.shape[2])
    return rms_norm_reference(flat, weight, epsilon, None)[0].view(heads.shape)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = cos.shape[2]
    first, second = slice(0, half), slice(half, 2 * half)
    a, b = x[..., first].float(), x[..., second].float()
    out = x.clone()
    out[..., first] = (a * cos - b * sin).to(x.dtype)
    out[..., second] = (b * cos + a * sin).to(x.dtype)
    return out
