"""Plugs our attention into unmodified `transformers` models through their public attention interface."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from specdec.errors import ModelError
from specdec_runtime.interfaces.attention import Attention
from specdec_runtime.interfaces.forward import PackedBatch
from specdec_runtime.models.attention_probe import AttentionProbe
from specdec_runtime.models.parts import CACHE_ARGUMENTS

if TYPE_CHECKING:
    from specdec_runtime.interfaces.pass_cache import PassCache

ATTENTION_NAME = "specdec"
_HARMLESS = frozenset(
    {
        "dropout", "is_causal", "position_ids", "cache_position", "use_cache", "output_attentions", "head_mask",
        "position_embeddings", "output_router_logits", "logits_to_keep", "attention_mask", "layer_idx",
        "output_hidden_states", "return_dict", *CACHE_ARGUMENTS,
    }
)  # fmt: skip


@dataclass
class AttentionContext:
    """State of the forward pass that is running on this thread."""

    attention: Attention
    batch: PackedBatch
    windows: Mapping[int, int | None] = field(default_factory=dict)
    """Sliding window of each layer, as found by the probe."""
    probe: AttentionProbe | None = None
    """Set in the probing pass only."""
    cache: PassCache | None = None
    """What the model takes for its cache; None if it is given none."""


_ACTIVE: ContextVar[AttentionContext | None] = ContextVar("specdec_attention", default=None)


class running:
    """Context manager that makes attention calls on this thread use `context`."""

    def __init__(self, context: AttentionContext) -> None:
        self._context = context

    def __enter__(self) -> AttentionContext:
        self._token = _ACTIVE.set(self._context)
        return self._context

    def __exit__(self, *exc: object) -> None:
        _ACTIVE.reset(self._token)


def register() -> None:
    """Register the attention implementation `specdec` with `transformers`; idempotent."""
    from transformers import AttentionInterface  # takes seconds, and plugins are listed without it
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(ATTENTION_NAME, _attention)
    AttentionMaskInterface.register(ATTENTION_NAME, _mask)


def _mask(*args: Any, **kwargs: Any) -> torch.Tensor | None:
    context = _ACTIVE.get()
    if context is None:
        from transformers.masking_utils import sdpa_mask

        mask: torch.Tensor | None = sdpa_mask(*args, **kwargs)
        return mask
    if context.probe is not None:
        return context.probe.mask(
            kwargs["mask_function"], kwargs.get("local_size"), context.batch.token_ids.device
        )
    return None


def _attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    context = _ACTIVE.get()
    if context is None:
        # The caller uses the model outside the engine, for instance in `generate`: behave as transformers does.
        if softcap is not None or s_aux is not None:
            raise ModelError(
                f"{type(module).__name__} uses soft caps or sinks: call model.set_attn_implementation('eager') "
                "before using the model outside specdec"
            )
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        out, _ = sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            scaling=scaling,
            sliding_window=sliding_window,
            **kwargs,
        )
        return out, None
    layer = module.layer_idx if context.cache is None else context.cache.attending_layer(module)
    assert isinstance(layer, int)
    if context.probe is not None:
        _refuse_unknown(module, kwargs)
        window = context.probe.note(module, layer, attention_mask, sliding_window)
    else:
        window = context.windows[layer]
    out = context.attention.attend(
        layer,
        context.batch,
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=window,
        softcap=softcap,
        sinks=s_aux,
    )
    return out[None], None


def _refuse_unknown(module: nn.Module, kwargs: dict[str, Any]) -> None:
    if not getattr(module, "is_causal", True):
        raise ModelError(
            f"{type(module).__name__} is not causal; specdec serves decoder-only language models"
        )
    unknown = sorted(key for key, value in kwargs.items() if value is not None and key not in _HARMLESS)
    if unknown:
        raise ModelError(
            f"{type(module).__name__} passes {', '.join(unknown)} to attention, which specdec does not know; "
            "ignoring it would change the output"
        )
