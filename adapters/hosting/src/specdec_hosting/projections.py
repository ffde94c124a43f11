"""The input embedding and output projection of another engine's target, for heads."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import nn

from specdec import ModelError

_EMBEDDINGS = ("model.embed_tokens.weight", "transformer.wte.weight", "model.decoder.embed_tokens.weight")
_HEADS = ("lm_head.weight", "embed_out.weight")
_HEAD_BIASES = ("lm_head.bias", "embed_out.bias")


def lent_projections(
    model: nn.Module,
    *,
    num_ids: int,
    hidden_size: int,
    is_tied: bool,
    path: str,
    revision: str | None,
    device: torch.device,
    dtype: torch.dtype,
) -> tuple[nn.Module | None, nn.Module | None]:
    """Return the input embedding and output projection: the engine's own weights if they are whole, else the checkpoint's.

    Args:
        model: the engine's loaded target, with its embedding at `model.embed_tokens` and its projection at `lm_head`.
        num_ids: number of ids; an engine may pad its weights to more.
        hidden_size: size of a hidden state.
        is_tied: whether the projection is the embedding.
        path: directory or hub id of the checkpoint.
        revision: of the checkpoint.
        device: where weights that are read are put.
        dtype: of these.

    Returns:
        both, or None for one that is nowhere.
    """

    def read(names: tuple[str, ...]) -> torch.Tensor | None:
        found = _read(path, revision, names)
        return None if found is None else found.to(device, dtype)

    inner, projection = getattr(model, "model", None), getattr(model, "lm_head", None)
    embed = _whole(getattr(inner, "embed_tokens", None), num_ids, hidden_size)
    if embed is None:
        embed = read(_EMBEDDINGS)
    head = embed if is_tied else _whole(projection, num_ids, hidden_size)
    if head is None:
        head = read(_HEADS)
    bias = getattr(projection, "bias", None)
    if isinstance(bias, torch.Tensor):
        bias = bias.detach()[:num_ids] if len(bias) >= num_ids else read(_HEAD_BIASES)
    return _embedding(embed), _linear(head, bias)


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
