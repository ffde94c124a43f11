"""Recognises decoder layers of the Llama structure by their parts, not by their names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj"}
_HEAD_NORMS = {"q_norm", "k_norm"}
_MLP = {"gate_proj", "up_proj", "down_proj", "act_fn"}


@dataclass(frozen=True)
class LlamaParts:
    """The parts of a model whose layers have the Llama structure."""

    embed_tokens: nn.Embedding
    layers: nn.ModuleList
    norm: nn.Module
    rotary: nn.Module
    head: nn.Linear


def is_plain_linear(module: nn.Module | None) -> bool:
    """Return whether a module is a plain `nn.Linear` with floating-point weights: not quantised, wrapped or offloaded."""
    if type(module) is not nn.Linear or hasattr(module, "_hf_hook"):
        return False
    return type(module.weight.data) is torch.Tensor and module.weight.is_floating_point()


def llama_parts(
    model: PreTrainedModel, is_linear: Callable[[nn.Module | None], bool] = is_plain_linear
) -> LlamaParts | None:
    """Return the parts of a model of the Llama structure, or None for any other.

    Args:
        model: the model.
        is_linear: returns whether its products can be made with a module.
    """
    base = model.base_model
    parts = dict(base.named_children())
    if set(parts) != {"embed_tokens", "layers", "norm", "rotary_emb"}:
        return None
    head = model.get_output_embeddings()
    embed = parts["embed_tokens"]
    layers = parts["layers"]
    if not is_linear(head) or type(embed) is not nn.Embedding or not isinstance(layers, nn.ModuleList):
        return None
    if not is_rms_norm(parts["norm"]) or not all(_is_llama_layer(layer, is_linear) for layer in layers):
        return None
    return LlamaParts(embed, layers, parts["norm"], parts["rotary_emb"], head)


def is_rms_norm(module: nn.Module) -> bool:
    """Return whether a module is a plain root-mean-square norm with a multiplicative weight."""
    return (
        type(module).__name__.endswith("RMSNorm")
        and hasattr(module, "variance_epsilon")
        and [name for name, _ in module.named_parameters()] == ["weight"]
    )


def is_silu(module: nn.Module) -> bool:
    """Return whether an activation is SiLU."""
    return isinstance(module, nn.SiLU) or type(module).__name__ == "SiLUActivation"


def _is_llama_layer(layer: nn.Module, is_linear: Callable[[nn.Module | None], bool]) -> bool:
    parts = dict(layer.named_children())
    if set(parts) != _LAYER:
        return False
    attention, mlp = dict(parts["self_attn"].named_children()), dict(parts["mlp"].named_children())
    head_norms = set(attention) - _PROJECTIONS
    return (
        set(attention) >= _PROJECTIONS
        and head_norms in (set(), _HEAD_NORMS)
        and set(mlp) == _MLP
        and all(is_linear(attention[name]) for name in _PROJECTIONS)
        and all(is_linear(mlp[name]) for name in _MLP - {"act_fn"})
        and all(is_rms_norm(attention[name]) for name in head_norms)
        and is_rms_norm(parts["input_layernorm"])
        and is_rms_norm(parts["post_attention_layernorm"])
    )
