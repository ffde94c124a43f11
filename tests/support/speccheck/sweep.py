"""One class of `transformers` on the engine, in every way of drafting, beside its own `generate`."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from speccheck.causal import tiny_config
from speccheck.engines import engine_of, greedy, make_llm, scripted, tokens_of
from speccheck.identity import assert_identical, references
from speccheck.models import make, prompts
from specdec import LLM, ConfigError, ModelError
from specdec_runtime.models.state_layers import keeps_states

MAX_TOKENS = 12
PROMPTS = prompts([3, 41, 1, 23, 70], seed=3)
CHUNKS = {"max_num_batched_tokens": 19}
SMALL = {"max_model_len": 96, "num_gpu_blocks_override": 7, "max_num_batched_tokens": 24}
"""A cache for little more than one request."""
HOSTILE = {"wrong": 0.7, "shape": "mixed", "malformed_every": 3, "fails_every": 5}
MOST_PARAMETERS = 4_000_000
ANOTHER_SEED = ("gpt_bigcode", "jamba")
"""Models that with the first seed answer two prompts alike, or have two ids whose logits are 6e-6 apart."""


def tiny(name: str) -> PreTrainedModel:
    """Return the tiny model of a `model_type`, in float32."""
    config = tiny_config(name)
    with torch.device("meta"):
        size = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
    assert size < MOST_PARAMETERS
    return make(config, seed=sum(map(ord, name)) + (name in ANOTHER_SEED))


def refusal(model: PreTrainedModel) -> str | None:
    """Return why the engine does not serve a model; None if it does."""
    try:
        make_llm(model)
    except (ConfigError, ModelError) as error:
        return str(error)
    return None


def check(model: PreTrainedModel) -> None:
    """Compare all ways of drafting with `generate`."""
    expected = references(model, PROMPTS, MAX_TOKENS)
    assert len({tuple(tokens) for tokens in expected}) == len(PROMPTS)  # the prompt matters
    texts = [[*prompt, *answer] for prompt, answer in zip(PROMPTS, expected, strict=True)]
    is_chain = keeps_states(model.config)

    def drafting(**keys: Any) -> dict[str, Any]:
        return scripted(texts=texts, is_chain=is_chain, adaptive=False, **keys)

    def run(speculation: dict[str, Any] | None, **arguments: Any) -> LLM:
        llm = make_llm(model, speculation, **arguments)
        assert_identical(model, PROMPTS, expected, tokens_of(llm, PROMPTS, greedy(MAX_TOKENS)))
        return llm

    run(None, **CHUNKS)
    run({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1})
    shape = "chain" if is_chain else "tree"
    drafted = engine_of(run(drafting(k=8, wrong=0.2, shape=shape), **CHUNKS)).metrics
    assert 0 < drafted.num_accepted_tokens < drafted.num_draft_tokens
    assert drafted.proposer_errors == drafted.proposer_nodes_cut == 0
    hostile = HOSTILE | ({"shape": "chain"} if is_chain else {})
    assert engine_of(run(drafting(k=5, **hostile))).metrics.proposer_errors > 0
    assert engine_of(run(drafting(k=4, wrong=0.2), **SMALL)).metrics.num_preemptions > 0
