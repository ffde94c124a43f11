"""Checks, once when a model is loaded, that a backend's attention agrees with torch's on this device."""

from __future__ import annotations

import torch
from transformers import PretrainedConfig

from specdec.interfaces.attention import AttentionFactory, AttentionNeeds
from specdec.interfaces.forward import PackedBatch, Segment
from specdec.interfaces.kv_cache import KVCache, LayerShape
from specdec.runner.sdpa import SdpaAttention

_SPACING = 64
"""Slots between the starts of two consecutive requests of the probe."""
_CACHED_AND_NEW = ((0, 19), (21, 1), (17, 4))
"""Cached rows and new rows of each request: a prompt, a step without a draft, and a tree."""
_PARENTS = (-1, 0, 0)
"""Parents of the tree's nodes, which follow the request's last token."""
_TOLERANCES = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest allowed difference of outputs for standard normal values: a few units in the last place of the dtype.

For float32 the unit is that of TF32, because torch rounds to TF32 where that is allowed and the kernels do not.
"""


@torch.inference_mode()
def disagreement(factory: AttentionFactory, needs: AttentionNeeds, config: PretrainedConfig) -> str | None:
    """Return in a few words how a backend's attention differs from torch's on a device; None if they agree.

    Args:
        factory: the backend's.
        needs: device, and dtype of keys and values.
        config: the model's configuration; the probe uses its head counts and head size.
    """
    worst = 0.0
    for shape in _shapes(config.get_text_config()):
        got, expected = (_attend(make, needs, shape) for make in (factory, SdpaAttention))
        worst = max(worst, (got - expected).abs().max().nan_to_num(torch.inf).item())
    if worst > _TOLERANCES.get(needs.dtype, 0.0):
        return f"its attention differs from torch's by {worst:.2g}"
    return None


def _shapes(config: PretrainedConfig) -> set[tuple[int, int, int]]:
    """Return the number of query heads, the number of key-value heads, and the head size; one for each kind of layer."""
    found = set()
    for layer in getattr(config, "per_layer_config", None) or [config]:
        heads: int | None = getattr(layer, "num_attention_heads", None)
        if heads is None:
            continue  # no layer attends
        width = getattr(layer, "head_dim", None) or layer.hidden_size // heads
        found.add((heads, getattr(layer, "num_key_value_heads", None) or heads, width))
    return found


def _attend(make: AttentionFactory, needs: AttentionNeeds, shape: tuple[int, int, int]) -> torch.Tensor:
    """Return the attention output `[T, H, D]` of the probe's pass, in float32."""
    heads, kv_heads, width = shape
    device, dtype = needs.device, needs.dtype
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).to(device, dtype)

    batch = _batch(device)
    cache = KVCache(_SPACING * (len(batch.segments) + 1), device)
    cache.allocate(0, LayerShape(kv_heads, width, width, dtype))
    for stored in (cache.keys[0], cache.values[0]):
        stored.copy_(normal(*stored.shape))
    rows = len(batch.token_ids)
    output = make(cache, _SPACING).attend(
        0,
        batch,
        normal(rows, heads, width),
        normal(rows, kv_heads, width),
        normal(rows, kv_heads, width),
        scaling=width**-0.5,
    )
    return output.float().cpu()


def _batch(device: torch.device) -> PackedBatch:
    segments: list[Segment] = []
    slots: list[torch.Tensor] = []
    row = 0
    for request, (cached, new) in enumerate(_CACHED_AND_NEW):
        segments.append(Segment(row, new, _SPACING * (request + 1), cached))
        slots.append(torch.arange(cached, cached + new) + segments[-1].first_slot)
        row += new
    visible = torch.eye(1 + len(_PARENTS), dtype=torch.bool)
    for node, parent in enumerate(_PARENTS, 1):
        visible[node] |= visible[parent + 1]
    segments[-1].tree_mask = visible
    segments[-1].depths = visible.sum(1) - 1
    starts = [segment.num_cached for segment in segments]
    depths = [torch.arange(s.num_rows) if s.depths is None else s.depths for s in segments]
    positions = torch.cat([start + depth for start, depth in zip(starts, depths, strict=True)])
    return PackedBatch(
        torch.zeros(row, dtype=torch.int64, device=device),
        positions.to(device),
        segments,
        torch.cat(slots).to(device),
        None,
    )
