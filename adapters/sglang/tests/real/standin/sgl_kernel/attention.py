"""Attention on SGLang's pool of cache rows, request by request, by torch's own function."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

_LIBRARY = torch.library.Library("sgl_kernel", "DEF")
Tensor = torch.Tensor


def _attend(q: Tensor, pools: tuple[Tensor, Tensor], slots: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Return `[rows, heads, size]` of queries `[rows, heads, size]` with `mask` `[rows, slots]`, in float32."""
    keys, values = (pool[slots.long()].transpose(0, 1).float() for pool in pools)
    groups = q.shape[1] // keys.shape[0]
    keys, values = keys.repeat_interleave(groups, 0), values.repeat_interleave(groups, 0)
    return scaled_dot_product_attention(
        q.transpose(0, 1).float(), keys, values, attn_mask=mask, scale=scale
    ).transpose(0, 1)


def _refuse(cap: float, cross: bool, window: int, encoder: Any, sinks: Any) -> None:
    if cap or cross or window > 0 or encoder is not None or sinks is not None:
        raise NotImplementedError("attention other than over a whole text")


def extend(
    q, k, v, out, key_pool, value_pool, key_scale, value_scale, table, rows, lengths, new_lengths, starts, longest,
    scale, cap, cross, window, encoder, sinks, tree_mask, causal,
) -> None:  # fmt: skip
    """Attend from the last rows of each text, whose keys are in the pool; `tree_mask` `[B * n * n]` is among them."""
    _refuse(cap, cross, window, encoder, sinks)
    requests = zip(rows.tolist(), lengths.tolist(), new_lengths.tolist(), starts.tolist(), strict=False)
    for b, (row, length, new, start) in enumerate(requests):
        mask = torch.ones(new, length, dtype=torch.bool)
        if tree_mask is not None:
            mask[:, length - new :] = tree_mask[b * new * new : (b + 1) * new * new].view(new, new).bool()
        elif causal:
            mask[:, length - new :] = mask[:, length - new :].tril()
        own = slice(start, start + new)
        out[own] = _attend(q[own], (key_pool, value_pool), table[row, :length], mask, scale).to(out.dtype)


def decode(
    q, key_pool, value_pool, key_scale, value_scale, out, k, v, slots, logits, table, rows, lengths, scale, cap, cross,
    window, encoder, sinks,
) -> None:  # fmt: skip
    """Attend from one new row of each text, whose key and value are written first."""
    _refuse(cap, cross, window, encoder, sinks)
    for pool, new in ((key_pool, k), (value_pool, v)):
        if new is not None:
            pool[slots] = new.view(-1, *pool.shape[1:]).to(pool.dtype)
    for b, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=False)):
        mask = torch.ones(1, length, dtype=torch.bool)
        out[b : b + 1] = _attend(q[b : b + 1], (key_pool, value_pool), table[row, :length], mask, scale).to(
            out.dtype
        )


_SHARED = "float scale, float cap, bool cross, int window, Tensor? encoder, Tensor? sinks"
_POOLS = "Tensor{} kp, Tensor{} vp, float ks, float vs"
_LIBRARY.define(
    f"extend_attention_cpu(Tensor q, Tensor? k, Tensor? v, Tensor(a!) o, {_POOLS.format('', '')}, Tensor table, "
    f"Tensor rows, Tensor lengths, Tensor extend, Tensor starts, int longest, {_SHARED}, Tensor? tree, bool causal) -> ()"
)
_LIBRARY.define(
    f"decode_attention_cpu(Tensor q, {_POOLS.format('(b!)', '(c!)')}, Tensor(a!) o, Tensor? k, Tensor? v, Tensor slots, "
    f"Tensor logits, Tensor table, Tensor rows, Tensor lengths, {_SHARED}) -> ()"
)
_LIBRARY.impl("extend_attention_cpu", extend, "CPU")
_LIBRARY.impl("decode_attention_cpu", decode, "CPU")
