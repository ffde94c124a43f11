"""Layers that drafts leave out: which ones, and what stays of the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from speccheck.engines import engine_of, greedy, make_llm, tokens_of
from speccheck.models import CONFIGS, make, prompts, tiny

from specdec import LLM, ConfigError
from specdec_plugin_self_draft import SelfDraftConfig
from specdec_plugin_self_draft.skipping import least_needed, leave_out
from specdec_runtime.models import decoder_layers


def model_of(num_layers: int, idle: tuple[int, ...] = ()) -> Any:
    """Return a small model in which some layers add nothing to what enters them."""
    config = CONFIGS["llama"]()
    config.num_hidden_layers = num_layers
    model = make(config, seed=3)
    with torch.no_grad():
        for number in idle:
            layer = model.model.layers[number]
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    return model


def logits_of(model: Any) -> torch.Tensor:
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        return model(input_ids=torch.arange(1, 12)[None], use_cache=False).logits


def test_layers_that_add_nothing_are_found_and_left_out() -> None:
    model = model_of(5, idle=(1, 3))
    before = logits_of(model)
    assert least_needed(model, 2, None) == (1, 3)
    assert torch.equal(logits_of(model), before)
    leave_out(model, (1, 3))
    assert [layer.self_attn.layer_idx for layer in decoder_layers(model)] == [0, 2, 4]
    assert torch.allclose(logits_of(model), before, atol=1e-6)


@pytest.mark.parametrize("name", ["gemma2", "gemma3", "qwen2_window", "smollm3", "deepseek_v3", "gpt2"])
@pytest.mark.parametrize("skipped", [[0], [1], 1])
@pytest.mark.sampled(6, slow=6)
def test_texts_of_models_whose_layers_differ_stay(name: str, skipped: Any) -> None:
    """Layers with windows or without positions, and models without a compiled form."""
    model, texts = tiny(name), prompts([9, 30, 41], seed=2)
    keys = {"num_speculative_tokens": 3, "weights": "own", "adaptive": False, "on_proposer_error": "raise"}
    llm = make_llm(model, {"method": "self", "skip_layers": skipped} | keys)
    assert tokens_of(llm, texts, greedy(24)) == tokens_of(make_llm(model), texts, greedy(24))
    assert engine_of(llm).metrics.num_draft_tokens > 0


def test_layers_that_are_not_there_are_named() -> None:
    with pytest.raises(ConfigError, match="layers 0 to 2, and no layer 3"):
        leave_out(model_of(3), (1, 3))
    with pytest.raises(ConfigError, match="layers 0 to 2, and one must stay"):
        leave_out(model_of(3), (0, 1, 2))
    with pytest.raises(ConfigError, match="3 of the target's 3 layers: one must stay"):
        least_needed(model_of(3), 3, None)
    with pytest.raises(ConfigError, match="no layer 99"):
        LLM("zoo", speculative_config={"method": "self", "skip_layers": [99]})


def test_a_draft_as_dear_as_the_target_is_refused() -> None:
    with pytest.raises(ValueError, match="'own' without skip_layers or attention_window"):
        SelfDraftConfig(num_speculative_tokens=2, weights="own")
    assert SelfDraftConfig(num_speculative_tokens=2, weights="own", skip_layers=[1]).skip_layers == (1,)
    assert (
        SelfDraftConfig(num_speculative_tokens=2, weights="own", head_weights="int8").head_weights == "int8"
    )
