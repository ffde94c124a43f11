"""SGLang's target in the form that specdec proposers use."""

from __future__ import annotations

from typing import Any

from specdec_hosting import HostTarget, with_parts_of
from specdec_sglang.states import can_give_layers


def host_target(
    runner: Any, tokenizer: Any, memory: int | None, *, verifies_trees: bool, returns_states: bool
) -> HostTarget:
    """Return the target's facts and modules for proposers.

    Args:
        runner: SGLang's model runner, with its target loaded.
        tokenizer: the target's; None if SGLang has loaded none.
        memory: bytes for the KV cache of the proposer's models; None for what fits, on a device a share.
        verifies_trees: whether SGLang is configured for trees.
        returns_states: whether SGLang returns the target's hidden states.
    """
    from sglang.srt.runtime_context import get_schedule

    theirs, model = runner.model_config, runner.model
    weight = next(model.parameters())
    facts = HostTarget(
        vocab_size=theirs.vocab_size,
        max_model_len=theirs.context_len,
        eos_token_ids=tuple(sorted(theirs.hf_eos_token_id or ())),
        hidden_size=theirs.hidden_size,
        num_layers=theirs.num_hidden_layers,
        dtype=theirs.dtype,
        device=weight.device,
        max_num_seqs=get_schedule().max_running_requests,  # `server_args` has what the user gave
        path=theirs.model_path,
        revision=theirs.revision,
        config=theirs.hf_config,
        tokenizer=tokenizer,
        has_hidden_states=returns_states,
        has_aux_hidden_states=returns_states and can_give_layers(model),
        verifies_trees=verifies_trees,
        kv_cache_memory_bytes=memory,
    )
    return with_parts_of(facts, model)
