"""SGLang's target in the form that specdec proposers use."""

from __future__ import annotations

from typing import Any

import torch

from specdec_hosting import HostTarget, lent_projections
from specdec_sglang.states import can_give_layers

_DEVICE_SHARE = 20
"""By default a proposer's caches may take 1 / this share of a device's memory."""


def host_target(
    runner: Any, tokenizer: Any, memory: int | None, *, verifies_trees: bool, returns_states: bool
) -> HostTarget:
    """Return the target's facts and modules for proposers.

    Args:
        runner: SGLang's model runner, with its target loaded.
        tokenizer: the target's; None if SGLang has loaded none.
        memory: bytes for the KV cache of the proposer's models; None for what fits, on a device a share of it.
        verifies_trees: whether SGLang is configured for trees.
        returns_states: whether SGLang returns the target's hidden states.
    """
    theirs, model = runner.model_config, runner.model
    config = theirs.hf_config
    weight = next(model.parameters())
    device, dtype = weight.device, theirs.dtype
    embed, head = lent_projections(
        model,
        num_ids=theirs.vocab_size,
        hidden_size=theirs.hidden_size,
        is_tied=bool(getattr(config.get_text_config(), "tie_word_embeddings", False)),
        path=theirs.model_path,
        revision=theirs.revision,
        device=device,
        dtype=dtype,
    )
    if memory is None and device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory // _DEVICE_SHARE
    return HostTarget(
        vocab_size=theirs.vocab_size,
        max_model_len=theirs.context_len,
        eos_token_ids=tuple(sorted(theirs.hf_eos_token_id or ())),
        hidden_size=theirs.hidden_size,
        num_layers=theirs.num_hidden_layers,
        dtype=dtype,
        device=device,
        max_num_seqs=runner.server_args.max_running_requests,
        path=theirs.model_path,
        revision=theirs.revision,
        config=config,
        tokenizer=tokenizer,
        embed_tokens=embed,
        lm_head=head,
        has_hidden_states=returns_states,
        has_aux_hidden_states=returns_states and can_give_layers(model),
        verifies_trees=verifies_trees,
        kv_cache_memory_bytes=memory,
    )
