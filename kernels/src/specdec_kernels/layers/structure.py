"""Recognises decoder layers by their parts, not by their names, and describes them as `LayerParts`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from specdec.interfaces import Declined
from specdec_kernels.attended_rows import ATTENDED_ROWS
from specdec_kernels.layers.behaviour import activation_of, is_interleaved, norm_of
from specdec_kernels.layers.parts import LayerParts, ModelParts, Norm, Rotation
from specdec_runtime.interfaces import BlockEmbedding

if TYPE_CHECKING:
    from transformers import PreTrainedModel

IsLinear = Callable[[nn.Module | None], bool]

_BEFORE, _ATTENDED, _MLP, _AFTER = "input_norm", "attended_norm", "mlp_norm", "mlp_out_norm"
_PLACES: tuple[dict[str, str], ...] = (
    {"input_layernorm": _BEFORE, "post_attention_layernorm": _MLP},
    {"post_attention_layernorm": _MLP},
    {
        "input_layernorm": _BEFORE,
        "post_attention_layernorm": _ATTENDED,
        "pre_feedforward_layernorm": _MLP,
        "post_feedforward_layernorm": _AFTER,
    },
    {
        "input_layernorm": _BEFORE,
        "post_self_attn_layernorm": _ATTENDED,
        "post_attention_layernorm": _MLP,
        "post_mlp_layernorm": _AFTER,
    },
    {"post_attention_layernorm": _ATTENDED, "post_feedforward_layernorm": _AFTER},
    {"input_layernorm": _BEFORE},
)
"""Where the norms of a layer stand, by their names: the same name stands elsewhere beside others. With the first alone,
attention and feed-forward layer are side by side."""
_QKV = (("q_proj", "k_proj", "v_proj"), ("qkv_proj",), ("q_proj", "k_proj"))
_GATE_UP = (("gate_proj", "up_proj"), ("gate_up_proj",))
_ACTIVATIONS = ("act_fn", "activation_fn")
_HEAD_NORMS = {"q_norm": "query_norm", "k_norm": "key_norm", "v_norm": "value_norm"}


class _UnknownError(Exception):
    """Some part is not known; its text is a clause about the model."""


def is_plain_linear(module: nn.Module | None) -> bool:
    """Return whether a module is a plain `nn.Linear` with floating-point weights: not quantised, wrapped or offloaded."""
    if type(module) is not nn.Linear or hasattr(module, "_hf_hook"):
        return False
    return type(module.weight.data) is torch.Tensor and module.weight.is_floating_point()


def model_parts(
    model: PreTrainedModel, windows: Mapping[int, int | None], is_linear: IsLinear = is_plain_linear
) -> ModelParts | Declined:
    """Describe a model, or say which of its parts are not known.

    Args:
        model: the model.
        windows: sliding window of each layer; not all modules keep it as an attribute.
        is_linear: returns whether its products can be made with a module.
    """
    try:
        return _model_parts(model, windows, is_linear)
    except _UnknownError as unknown:
        is_spread = any(hasattr(module, "_hf_hook") for module in model.modules())
        return Declined("its layers are spread by device_map" if is_spread else str(unknown))


def layer_parts(
    layer: nn.Module,
    rotary: nn.Module,
    windows: Mapping[int, int | None],
    is_linear: IsLinear = is_plain_linear,
    *,
    like: torch.Tensor,
) -> LayerParts | Declined:
    """Describe one layer of a head, or say which of its parts are not known.

    Args:
        layer: the layer.
        rotary: the module of its rotary factors.
        windows: see `model_parts`.
        is_linear: ditto.
        like: any tensor of the head's dtype and device.
    """
    try:
        return _layer_parts(layer, rotary, windows, is_linear, like)
    except _UnknownError as unknown:
        return Declined(str(unknown))


def _model_parts(
    model: PreTrainedModel, windows: Mapping[int, int | None], is_linear: IsLinear
) -> ModelParts:
    base = model.base_model
    parts = dict(base.named_children())
    if set(parts) != {"embed_tokens", "layers", "norm", "rotary_emb"}:
        raise _UnknownError(f"it is made of {', '.join(parts)}")
    head, embed, layers = model.get_output_embeddings(), parts["embed_tokens"], parts["layers"]
    is_known = is_linear(head) or is_plain_linear(head)
    if (
        not is_known
        or not isinstance(embed, nn.Embedding | BlockEmbedding)
        or not isinstance(layers, nn.ModuleList)
    ):
        raise _UnknownError("its embedding or output projection is not a plain one")
    like, config = like_of(embed), model.config.get_text_config()
    scale = getattr(embed, "embed_scale", 1.0)
    scale = float(scale.to(like.dtype)) if isinstance(scale, torch.Tensor) else float(scale)
    return ModelParts(
        embed_tokens=embed,
        layers=tuple(_layer_parts(layer, parts["rotary_emb"], windows, is_linear, like) for layer in layers),
        norm=_norm(parts["norm"], like.shape[1]),
        rotary=parts["rotary_emb"],
        head=head,
        embed_scale=scale * float(getattr(base, "embedding_multiplier", 1.0)),
        logits_scale=float(getattr(config, "logit_scale", 1.0))
        / float(getattr(config, "logits_scaling", 1.0)),
        logits_softcap=getattr(config, "final_logit_softcapping", None),
    )


def _layer_parts(
    layer: nn.Module,
    rotary: nn.Module,
    windows: Mapping[int, int | None],
    is_linear: IsLinear,
    like: torch.Tensor,
) -> LayerParts:
    children = _children(layer)
    attention, mlp = children.pop("self_attn", None), children.pop("mlp", None)
    places = next((each for each in _PLACES if set(each) == set(children)), None)
    if attention is None or mlp is None or places is None:
        raise _UnknownError(f"its layers are made of {', '.join(_children(layer))}")
    attending, feeding = _children(attention), _children(mlp)
    head_norms = {name: attending.pop(name) for name in _HEAD_NORMS if name in attending}
    qkv, gate_up = _chosen(_QKV, attending, "o_proj"), _chosen(_GATE_UP, feeding, "down_proj", *_ACTIVATIONS)
    if qkv is None or gate_up is None:
        raise _UnknownError(
            f"its layers attend by {', '.join(attending)} and feed forward by {', '.join(feeding)}"
        )
    out, down = attending["o_proj"], feeding["down_proj"]
    if not all(is_linear(linear) for linear in (*qkv, out, *gate_up, down)):
        raise _UnknownError("its products are not plain linear modules")
    dim, scaling = getattr(attention, "head_dim", None), getattr(attention, "scaling", None)
    if not isinstance(dim, int) or not isinstance(scaling, float):
        raise _UnknownError("its attention has no head_dim or scaling")
    num_heads = _width(out, is_input=True) // dim
    num_others = sum(_width(linear) for linear in qkv) // dim - num_heads
    are_keys_values = len(qkv) == 2
    num_kv_heads = num_others if are_keys_values else num_others // 2
    widths = [dim * num_heads, *[dim * num_kv_heads] * (1 if are_keys_values else 2)]
    if [_width(linear) for linear in qkv] not in (widths, [sum(widths)]) or num_heads % max(num_kv_heads, 1):
        raise _UnknownError("its attention projects something beside queries, keys and values")
    activation = activation_of(next(feeding[name] for name in _ACTIVATIONS if name in feeding))
    if activation is None:
        raise _UnknownError("its activation is not SiLU or GELU by tanh")
    hidden = _width(down)
    index: int = attention.layer_idx  # type: ignore[assignment]  # transformers sets an int
    return LayerParts(
        index=index,
        window=windows[index],
        scaling=scaling,
        head_dim=dim,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        qkv=qkv,
        out=out,  # type: ignore[arg-type]  # `is_linear` says so
        gate_up=gate_up,
        down=down,  # type: ignore[arg-type]  # ditto
        activation=activation,
        rotation=_rotation(attention, rotary, like),
        **_norms(places, children, hidden),
        is_parallel=set(places.values()) == {_BEFORE},
        **_head_norms(head_norms, dim, num_heads),
        are_keys_values=are_keys_values,
        softcap=getattr(attention, "attn_logit_softcapping", None),
        attended=getattr(attention, ATTENDED_ROWS, None),
        residual_scale=float(getattr(layer, "residual_multiplier", 1.0)),
        output_scale=float(getattr(layer, "layer_scalar", 1.0)),
    )


def like_of(embedding: nn.Embedding | BlockEmbedding) -> torch.Tensor:
    """Return a tensor `[.., H]` of the dtype and on the device of what an embedding returns."""
    if isinstance(embedding, BlockEmbedding):
        return torch.empty((1, embedding.embedding_dim), dtype=embedding.dtype)
    return embedding.weight.detach()


def _children(module: nn.Module) -> dict[str, nn.Module]:
    """Return the children that do something when a model is not trained."""
    return {name: child for name, child in module.named_children() if not isinstance(child, nn.Dropout)}


def _chosen(
    choices: tuple[tuple[str, ...], ...], parts: Mapping[str, nn.Module], *others: str
) -> tuple[Any, ...] | None:
    """Return the modules of the choice that, with some of `others`, makes up the parts; None if there is none."""
    for names in choices:
        if set(names) <= set(parts) <= {*names, *others} and others[0] in parts:
            return tuple(parts[name] for name in names)
    return None


def _width(linear: Any, *, is_input: bool = False) -> int:
    size: int = linear.in_features if is_input else linear.out_features
    return size


def _norm(module: nn.Module, size: int) -> Norm:
    norm = norm_of(module, size)
    if norm is None:
        raise _UnknownError(f"{type(module).__name__} is a norm of another kind")
    return norm


def _norms(places: Mapping[str, str], modules: Mapping[str, nn.Module], size: int) -> dict[str, Any]:
    """Return the fields of `LayerParts` for norms over the hidden size."""
    return {place: _norm(modules[name], size) for name, place in places.items()}


def _head_norms(modules: Mapping[str, nn.Module], dim: int, num_heads: int) -> dict[str, Any]:
    """Return the fields of `LayerParts` for norms of queries, keys and values."""
    if not modules:
        return {}
    if not {"q_norm", "k_norm"} <= set(modules):
        raise _UnknownError(f"its attention has {', '.join(modules)} alone")
    sizes = {name: sum(p.numel() for p in module.parameters()) or dim for name, module in modules.items()}
    is_joint = set(sizes.values()) != {dim}
    if is_joint and (sizes["q_norm"] != num_heads * dim or "v_norm" in modules):
        raise _UnknownError(f"its attention norms {sizes['q_norm']} numbers of {num_heads} heads of {dim}")
    norms = {_HEAD_NORMS[name]: _norm(module, sizes[name]) for name, module in modules.items()}
    return {**norms, "is_joint_norm": is_joint}


def _rotation(attention: nn.Module, rotary: nn.Module, like: torch.Tensor) -> Rotation | None:
    if not getattr(attention, "use_rope", True):
        return None
    if getattr(attention, "is_sliding", None) is False and getattr(attention, "sliding_window", None):
        return None  # of EXAONE 4's layers, in models with windows, those without one
    interleaved = is_interleaved(attention)
    if interleaved is None:
        raise _UnknownError("its attention rotates by a rule of its own")
    in_windows = getattr(getattr(attention, "config", None), "sliding_window", None) is not None
    if interleaved and in_windows and getattr(attention, "sliding_window", 0) is None:
        return None  # of Cohere 2's layers those without a window
    layer_type = None
    if "layer_type" in inspect.signature(rotary.forward).parameters:
        layer_type = getattr(attention, "layer_type", getattr(attention, "attention_type", None))
    cos, _ = rotary_factors(rotary, like, torch.zeros(1, dtype=torch.int64, device=like.device), layer_type)
    return Rotation(layer_type, cos.shape[-1], interleaved)


@torch.no_grad()
def rotary_factors(
    rotary: nn.Module, like: torch.Tensor, positions: torch.Tensor, layer_type: str | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines `[P, R]` of a rotary module for positions `[P]`, in the dtype of `like [.., H]`."""
    kind = {} if layer_type is None else {"layer_type": layer_type}
    cos, sin = rotary(like[:1, None], position_ids=positions[None], **kind)
    return cos[0], sin[0]
