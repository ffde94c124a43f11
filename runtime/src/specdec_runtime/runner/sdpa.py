"""The reference attention: torch's scaled dot product attention on contiguous views of the cache, on each layer's device."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from specdec_runtime.interfaces.forward import PackedBatch, Segment
from specdec_runtime.interfaces.kv_cache import KVCache
from specdec_runtime.runner.masks import MaskMaker


class SdpaAttention:
    """Attention over a packed batch on any torch devices. One instance serves one model; see `specdec.interfaces.Attention`."""

    def __init__(self, cache: KVCache, max_context: int) -> None:
        self.cache = cache
        self._max_context = max_context
        self._masks: dict[torch.device, MaskMaker] = {}

    def attend(
        self,
        layer: int,
        batch: PackedBatch,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write keys and values to the cache and attend; see `specdec.interfaces.Attention.attend`."""
        segments = batch.segments
        if batch.slots is None:
            only = segments[0]
            start = only.first_slot + only.num_cached
            self.cache.write(layer, key, value, slice(start, start + only.num_rows))
            return self._segment(layer, only, query, scaling, window, softcap, sinks)
        self.cache.write(layer, key, value, batch.slots.to(key.device))
        out = query.new_empty((query.shape[0], query.shape[1], value.shape[2]))
        for segment in segments:
            end = segment.row + segment.num_rows
            rows = query[segment.row : end]
            out[segment.row : end] = self._segment(layer, segment, rows, scaling, window, softcap, sinks)
        return out

    def _segment(
        self,
        layer: int,
        segment: Segment,
        query: torch.Tensor,
        scaling: float,
        window: int | None,
        softcap: float | None,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        num_rows = segment.num_rows
        num_common = segment.num_cached - segment.num_branched
        first_key = 0 if window is None else max(0, num_common - window + 1)
        start, end = segment.first_slot + first_key, segment.first_slot + segment.kv_len
        keys = self.cache.keys[layer][start:end].transpose(0, 1)
        values = self.cache.values[layer][start:end].transpose(0, 1)
        queries = query.transpose(0, 1)
        is_tree = segment.tree_mask is not None
        is_fresh = segment.num_cached == 0 and not is_tree
        is_causal = num_rows > 1 and is_fresh and (window is None or num_rows <= window)
        mask = None
        if is_tree or (num_rows > 1 and (not is_causal or softcap is not None or sinks is not None)):
            masks = self._masks.get(query.device)
            if masks is None:
                masks = MaskMaker(self._max_context, query.dtype, query.device)
                self._masks[query.device] = masks
            mask = masks.make(segment, first_key, window)
        if softcap is not None or sinks is not None:
            out = capped_attention(queries, keys, values, mask, scaling, softcap, sinks)
        else:
            out = scaled_dot_product_attention(
                queries[None],
                keys[None],
                values[None],
                attn_mask=mask,
                is_causal=is_causal,
                scale=scaling,
                enable_gqa=queries.shape[0] != keys.shape[0],
            )[0]
        return out.transpose(0, 1)


def capped_attention(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attend with a soft cap on the scores and sinks in the softmax, which torch's fused op does not support.

    Args:
        queries: `[H, n, Dk]`.
        keys: `[Hkv, L, Dk]`.
        values: `[Hkv, L, Dv]`.
        mask: `[n, L]` additive, or None.
        scaling: factor on the scores.
        softcap: see `specdec.interfaces.Attention.attend`.
        sinks: `[H]` or None.

    Returns:
        `[H, n, Dv]`.
    """
    groups = queries.shape[0] // keys.shape[0]
    keys, values = keys.repeat_interleave(groups, 0), values.repeat_interleave(groups, 0)
    scores = queries @ keys.transpose(1, 2) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores + mask
    if sinks is None:
        return torch.softmax(scores, -1, dtype=torch.float32).to(values.dtype) @ values
    column = sinks.to(scores.dtype)[:, None, None].expand(-1, scores.shape[1], 1)
    weights = torch.softmax(torch.cat((scores, column), -1), -1, dtype=torch.float32)[..., :-1]
    return weights.to(values.dtype) @ values
