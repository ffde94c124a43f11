"""`rope_kv_write`: norms and rotates queries and keys, and writes keys and values to a paged cache."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import (
    IDS,
    check_heads,
    check_input,
    check_pages,
    check_rows,
    check_tensor,
    check_vector,
)
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.rope_kv_write.reference import HeadNorms, rope_kv_write_reference

__all__ = ["HeadNorms", "rope_kv_write"]


def rope_kv_write(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    positions: torch.Tensor,
    norms: HeadNorms | None = None,
    out: torch.Tensor | None = None,
    num_warps: int | None = None,
) -> torch.Tensor:
    """Norm and rotate queries and keys by their positions; return the queries, write keys and values to their slots.

    Rotary embedding (https://arxiv.org/abs/2104.09864): in a head's first R elements, pair i becomes
    `(x cos_i - y sin_i, y cos_i + x sin_i)`; pairs are `(i, i + R / 2)`. The rest of the
    head is unchanged. Norms are those of `rms_norm`. Computed in float32, rounded after the norm and after the rotation.
    Slots are as in `kv_write`. Results do not depend on the batch.

    Args:
        query: `[T, H, D]` float32, float16 or bfloat16, unit stride along D; H a multiple of Hkv.
        key: `[T, Hkv, D]` of the same type, unit stride along D.
        value: `[T, Hkv, Dv]` of the same type, unit stride along Dv.
        cos: `[P, R / 2]` contiguous floating point; R at most D. Includes the model's scaling, if any.
        sin: `[P, R / 2]` of the same type.
        key_pages: `[num_blocks, block_size, Hkv, D]`, written.
        value_pages: `[num_blocks, block_size, Hkv, Dv]`, written.
        slot_mapping: `[T]` int64, -1 for padding rows, whose keys and values are not written; their queries are.
        positions: `[T]` integer: the row of `cos` and `sin` for each row, including padding.
        norms: norms of the heads, before they are rotated; None for models without.
        out: `[T, H, D]` to write the queries to, may be `query`; None allocates it.
        num_warps: of a program, which has the heads of one KV head in one row; None uses the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    _check(query, key, value, cos, sin, positions, norms)
    num_rows, num_heads, key_dim = query.shape
    check_pages(key_pages, value_pages, (key.shape[1], key_dim), value.shape[2], like=query)
    check_tensor("slot_mapping", slot_mapping, (num_rows,), (torch.int64,), query)
    if out is None:
        out = query.new_empty(query.shape)
    check_rows("out", out, (num_rows, num_heads, key_dim), like=query)
    if num_rows == 0:
        return out
    inputs = (query, key, value, cos, sin, key_pages, value_pages, slot_mapping, positions)
    if backend_for(query) is Backend.REFERENCE:
        return out.copy_(rope_kv_write_reference(*inputs, norms))
    from specdec_kernels.triton.rope_kv_write.kernel import rope_kv_write_triton  # imports Triton

    rope_kv_write_triton(*inputs, norms, out, num_warps)
    return out


def _check(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    norms: HeadNorms | None,
) -> None:
    check_input("query", query, ("T", "H", "D"))
    num_rows, _, key_dim = query.shape
    check_rows("key", key, (num_rows, "Hkv", key_dim), like=query)
    check_rows("value", value, (num_rows, key.shape[1], "Dv"), like=query)
    check_heads(query, key.shape[1], "key")
    for name, table in (("cos", cos), ("sin", sin)):
        check_rows(name, table, ("P", "R / 2") if name == "cos" else cos.shape, like=cos)
        if not table.is_contiguous() or table.device != query.device:
            raise ValueError(f"{name} must be contiguous and on {query.device}, it is on {table.device}")
    if 2 * cos.shape[1] > key_dim:
        raise ValueError(f"cos rotates R={2 * cos.shape[1]} numbers of a head that has D={key_dim}")
    if norms is not None:
        check_vector("norms.query", norms.query, key_dim, like=query)
        check_vector("norms.key", norms.key, key_dim, like=query)
        if not norms.epsilon >= 0:
            raise ValueError(f"norms.epsilon={norms.epsilon} must be at least 0")
    check_tensor("positions", positions, (num_rows,), IDS, query)
