"""The input embedding and output projection of another engine's target, for heads."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import torch
from torch import nn

from specdec import ModelError
from specdec_hosting.target import HostTarget

_EMBEDDINGS = ("model.embed_tokens.weight", "transformer.wte.weight", "model.decoder.embed_tokens.weight")
_HEADS = ("lm_head.weight", "embed_out.weight")
_HEAD_BIASES = ("lm_head.bias", "embed_out.bias")
_DEVICE_SHARE = 20
"""By default a proposer's caches may take 1 / this share of a device's memory."""


def with_parts_of(target: HostTarget, model: nn.Module) -> HostTarget:
    """Return a target with the input embedding and output projection of the engine's loaded model, for heads.

    These are the engine's own weights if they are whole, else the checkpoint's, or None for one that is nowhere. A device's
    memory for the caches of a proposer's models is limited, if the target says no number.

    Args:
        target: the engine's facts, with its configuration.
        model: has its embedding at `model.embed_tokens` and its projection at `lm_head`; an engine may pad both to more ids.
    """
    num_ids, size = target.vocab_size, target.hidden_size

    def read(names: tuple[str, ...]) -> torch.Tensor | None:
        found = None if target.path is None else _read(target.path, target.revision, names)
        return None if found is None else found.to(target.device, target.dtype)

    inner, projection = getattr(model, "model", None), getattr(model, "lm_head", None)
    embed = _whole(getattr(inner, "embed_tokens", None), num_ids, size)
    if embed is None:
        embed = read(_EMBEDDINGS)
    text = None if target.config is None else target.config.get_text_config()
    head = embed if getattr(text, "tie_word_embeddings", False) else _whole(projection, num_ids, size)
    if head is None:
        head = read(_HEADS)
    bias = getattr(projection, "bias", None)
    if isinstance(bias, torch.Tensor):
        bias = bias.detach()[:num_ids] if len(bias) >= num_ids else read(_HEAD_BIASES)
    memory = target.kv_cache_memory_bytes
    if memory is None and target.device.type == "cuda":
        memory = torch.cuda.get_device_properties(target.device).total_memory // _DEVICE_SHARE
    return replace(
        target, embed_tokens=_embedding(embed), lm_head=_linear(head, bias), kv_cache_memory_bytes=memory
    )


def _whole(module: nn.Module | None, num_ids: int, size: int) -> torch.Tensor | None:
    """Return the weight `[num_ids, size]` of a module; None if it is packed, quantised or sharded."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        return None
    return weight.detach()[:num_ids] if weight.shape[0] >= num_ids and weight.shape[1] == size else None


def _read(path: str, revision: str | None, names: tuple[str, ...]) -> torch.Tensor | None:
    """Return the first of these tensors that the checkpoint has; None if it has none of them, or no safetensors."""
    if find_spec("specdec_runtime") is None:
        return None  # proposers that read it need the package, and bring it
    from specdec_runtime.drafting import HeadCheckpoint

    try:
        checkpoint = HeadCheckpoint(path, revision)
        found = next((name for name in names if checkpoint.has(name)), None)
        return None if found is None else checkpoint.read(found)
    except ModelError:
        return None


def _embedding(weight: torch.Tensor | None) -> nn.Module | None:
    return None if weight is None else nn.Embedding.from_pretrained(weight, freeze=True)


def _linear(weight: torch.Tensor | None, bias: torch.Tensor | None) -> nn.Module | None:
    if weight is None:
        return None
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=False)
    return linear
