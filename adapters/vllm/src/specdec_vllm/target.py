"""vLLM's target in the form that specdec proposers use."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig

from specdec_hosting import HostTarget, with_parts_of


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
    facts = HostTarget(
        vocab_size=theirs.get_vocab_size(),
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
        has_hidden_states=True,
        has_aux_hidden_states=hasattr(model, "set_aux_hidden_state_layers"),
        kv_cache_memory_bytes=memory,
    )
    return with_parts_of(facts, model)


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
