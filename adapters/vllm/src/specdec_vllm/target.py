"""vLLM's target as proposers of specdec borrow it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig

from specdec.hosting import HostTarget
from specdec.loading.checkpoint import SafetensorsReader

_EMBEDDINGS = ("model.embed_tokens.weight", "transformer.wte.weight", "model.decoder.embed_tokens.weight")
_HEADS = ("lm_head.weight", "embed_out.weight")
_DEVICE_SHARE = 20
"""On a device a proposer's caches may take one part in so many of its memory, where nothing is said."""


def host_target(vllm_config: Any, model: nn.Module, device: torch.device, memory: int | None) -> HostTarget:
    """Return what the target is and lends.

    Args:
        vllm_config: vLLM's whole configuration.
        model: the loaded target.
        device: where it runs.
        memory: bytes for keys and values of the proposer's models, None for what fits.
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
    """Return the target's tokenizer, which drafts of another vocabulary and files of remembered texts are matched by."""
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
    """Return the input embedding and the output projection: vLLM's own weights where they are whole, else the checkpoint's."""
    inner = getattr(model, "model", None)
    size = theirs.get_hidden_size()
    embed = _whole(getattr(inner, "embed_tokens", None), num_ids, size)
    if embed is None:
        embed = _read(theirs.model, _EMBEDDINGS, theirs.dtype, device)
    head = embed if text.tie_word_embeddings else _whole(getattr(model, "lm_head", None), num_ids, size)
    if head is None:
        head = _read(theirs.model, _HEADS, theirs.dtype, device)
    return _embedding(embed), _linear(head)


def _whole(module: nn.Module | None, num_ids: int, size: int) -> torch.Tensor | None:
    """Return the weight `[num_ids, size]` of a module that is neither packed, quantised nor spread over ranks."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        return None
    return weight.detach()[:num_ids] if weight.shape[0] >= num_ids and weight.shape[1] == size else None


def _read(path: str, names: tuple[str, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor | None:
    if not Path(path).is_dir():
        return None
    reader = SafetensorsReader(Path(path))
    found = next((name for name in names if name in set(reader.names())), None)
    return None if found is None else reader.read(found).to(device, dtype)


def _embedding(weight: torch.Tensor | None) -> nn.Module | None:
    return None if weight is None else nn.Embedding.from_pretrained(weight, freeze=True)


def _linear(weight: torch.Tensor | None) -> nn.Module | None:
    if weight is None:
        return None
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    return linear
