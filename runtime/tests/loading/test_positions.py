"""Models that read positions in ways of their own: at long positions served as `generate` does it, or refused."""

from __future__ import annotations

import pytest
import torch
import transformers as hf
from speccheck.engines import greedy, make_llm, scripted, tokens_of
from speccheck.identity import references
from speccheck.models import BASE, make, prompts

from specdec import ModelError
from specdec_runtime.interfaces.pass_cache import PassCache

LONG = {"max_position_embeddings": 128}
SCALED = {
    "rope_type": "default",
    "rope_theta": 10000.0,
    "llama_4_scaling_beta": 2.0,
    "original_max_position_embeddings": 16,
}


def ministral3() -> hf.PreTrainedModel:
    config = hf.Ministral3Config(**BASE | LONG, head_dim=8, rope_parameters=SCALED)
    return make(config)


def llama4(**keys: object) -> hf.PreTrainedModel:
    config = hf.Llama4TextConfig(
        **BASE | LONG, head_dim=8, intermediate_size_mlp=48, num_local_experts=2, attention_chunk_size=256,
        no_rope_layers=[1, 0], attn_temperature_tuning=True, attn_scale=4.0, **{"floor_scale": 16} | keys,
    )  # fmt: skip
    return make(config)


@pytest.mark.parametrize("is_eager", [True, False])
def test_queries_scaled_by_position(is_eager) -> None:
    model, many = ministral3(), prompts([50, 3, 30], seed=2)
    expected = references(model, many, 16)
    assert tokens_of(make_llm(model, max_model_len=128, enforce_eager=is_eager), many, greedy(16)) == expected


@pytest.mark.parametrize("is_eager", [True, False])
def test_positions_from_the_length_of_the_cache(is_eager) -> None:
    """Queries of layers without rotation are scaled by it; requests of one pass have different lengths, trees depths."""
    model, many = llama4(), prompts([50, 3, 30], seed=2)
    expected = references(model, many, 16)
    texts = [[*prompt, *answer] for prompt, answer in zip(many, expected, strict=True)]
    for speculation in (None, scripted(k=8, texts=texts, wrong=0.2, shape="tree", adaptive=False)):
        llm = make_llm(
            model, speculation, max_model_len=128, max_num_batched_tokens=19, enforce_eager=is_eager
        )
        assert tokens_of(llm, many, greedy(16)) == expected


def test_positions_that_no_length_of_rows_gives(monkeypatch) -> None:
    def lengths(cache: PassCache, layer_idx: int = 0) -> int:
        return 0 if isinstance(cache.length, torch.Tensor) else cache.length

    monkeypatch.setattr(PassCache, "get_seq_length", lengths)
    with pytest.raises(ModelError, match="takes positions from the length of the cache"):
        make_llm(llama4(), max_model_len=128)


def test_attention_called_twice_in_a_layer() -> None:
    with pytest.raises(ModelError, match="DiffLlamaAttention calls attention more than once in layer 0"):
        make_llm(make(hf.DiffLlamaConfig(**BASE)), max_model_len=64)
