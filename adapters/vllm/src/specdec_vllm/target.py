"""vLLM's target in the form that specdec proposers use."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig

from specdec import ModelError
from specdec_hosting import HostTarget

_EMBEDDINGS = ("model.embed_tokens.weight", "transformer.wte.weight", "model.decoder.embed_tokens.weight")
_HEADS = ("lm_head.weight", "embed_out.weight")
_HEAD_BIASES = ("lm_head.bias", "embed_out.bias")
_DEVICE_SHARE = 20
"""By default a proposer's caches may take 1 / this share of a device's memory."""


def host_target(vllm_config: Any, model: nn.Module, device: torch.device, memory: int | None) -> HostTarget:
    """Return the target's facts and modules for proposers.

    Args:
        vllm_config: vLLM's whole configuration.
        model: the loaded target.
        device: the device it runs on.
        memory: bytes for the KV cache of the proposer's models; None for what fits.
    """
    theirs = vllm_config.model_config
    config: PretrainedConfig = theirs.hf_config
    text = config.get_text_config()
    num_ids = theirs.get_vocab_size()
    embed, head = _projections(theirs, model, text, num_ids, device)
    if memory is None and device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory // _DEVICE_SHARE
    return HostTarget(
        vocab_size=num_ids,
        max_model_len=theirs.max_model_len,
        eos_token_ids=_end_ids(theirs, text),
        hidden_size=theirs.get_hidden_size(),
        num_layers=text.num_hidden_layers,
        dtype=theirs.dtype,
        device=device,
        max_num_seqs=vllm_config.scheduler_config.max_num_seqs,
        path=theirs.model,
        revision=theirs.revision,
        config=config,
        tokenizer=_tokenizer(theirs),
        embed_tokens=embed,
        lm_head=head,
        has_hidden_states=True,
        has_aux_hidden_states=hasattr(model, "set_aux_hidden_state_layers"),
        kv_cache_memory_bytes=memory,
    )


def _tokenizer(theirs: Any) -> Any:
    """Return the target's tokenizer, used to match drafts with another vocabulary and cache files."""
    if theirs.skip_tokenizer_init:
        return None
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(
        theirs.tokenizer, revision=theirs.tokenizer_revision, trust_remote_code=theirs.trust_remote_code
    )


def _end_ids(theirs: Any, text: PretrainedConfig) -> tuple[int, ...]:
    found = (theirs.try_get_generation_config() or {}).get("eos_token_id", text.eos_token_id)
    if found is None:
        return ()
    return (found,) if isinstance(found, int) else tuple(found)


def _projections(
    theirs: Any, model: nn.Module, text: PretrainedConfig, num_ids: int, device: torch.device
) -> tuple[nn.Module | None, nn.Module | None]:
    """Return the input embedding and output projection: vLLM's own weights if they are whole, else the checkpoint's."""
    inner, projection = getattr(model, "model", None), getattr(model, "lm_head", None)
    size = theirs.get_hidden_size()
    embed = _whole(getattr(inner, "embed_tokens", None), num_ids, size)
    if embed is None:
        embed = _read(theirs, _EMBEDDINGS, device)
    head = embed if text.tie_word_embeddings else _whole(projection, num_ids, size)
    if head is None:
        head = _read(theirs, _HEADS, device)
    bias = getattr(projection, "bias", None)
    if isinstance(bias, torch.Tensor):
        bias = bias.detach()[:num_ids] if len(bias) >= num_ids else _read(theirs, _HEAD_BIASES, device)
    return _embedding(embed), _linear(head, bias)


def _whole(module: nn.Module | None, num_ids: int, size: int) -> torch.Tensor | None:
    """Return the weight `[num_ids, size]` of a module; None if it is packed, quantised or sharded."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        return None
    return weight.detach()[:num_ids] if weight.shape[0] >= num_ids and weight.shape[1] == size else None


def _read(theirs: Any, names: tuple[str, ...], device: torch.device) -> torch.Tensor | None:
    """Return the first of these tensors that the checkpoint has; None if it has none of them, or no safetensors."""
    if find_spec("specdec_runtime") is None:
        return None  # proposers that read it need the package, and bring it
    from specdec_runtime.drafting import HeadCheckpoint

    try:
        checkpoint = HeadCheckpoint(theirs.model, theirs.revision)
        found = next((name for name in names if checkpoint.has(name)), None)
        return None if found is None else checkpoint.read(found).to(device, theirs.dtype)
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
