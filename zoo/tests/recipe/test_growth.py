"""A model that grows says what it said before."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaForCausalLM
from zoo_recipe.growth import Growth, grown
from zoo_recipe.recipe import ModelShape
from zoo_recipe.target import build_target, next_token_loss, target_config

SHAPE = ModelShape(hidden_size=32, num_layers=4, num_heads=2, num_kv_heads=1, intermediate_size=48)
TOKENS = torch.tensor([[1, 5, 7, 2, 9, 11, 3]])


@pytest.fixture
def model() -> LlamaForCausalLM:
    return build_target(target_config(SHAPE, vocab_size=16, end_of_text=0), 1)


@pytest.mark.parametrize("num_layers", [4, 5, 6, 7, 8])
def test_the_function_is_the_same(model: LlamaForCausalLM, num_layers: int) -> None:
    larger = grown(model, num_layers)
    assert len(larger.model.layers) == larger.config.num_hidden_layers == num_layers
    with torch.no_grad():
        assert torch.equal(larger(TOKENS).logits, model(TOKENS).logits)


def test_new_layers_are_spread_evenly(model: LlamaForCausalLM) -> None:
    larger = grown(model, 6)
    is_silent = [not layer.mlp.down_proj.weight.any().item() for layer in larger.model.layers]
    assert is_silent == [False, False, True, False, False, True]
    assert torch.equal(larger.model.layers[5].mlp.up_proj.weight, model.model.layers[3].mlp.up_proj.weight)


def test_new_layers_learn_from_the_first_step(model: LlamaForCausalLM) -> None:
    larger = grown(model, 6)
    next_token_loss(larger, TOKENS).backward()  # type: ignore[no-untyped-call]
    gradient = larger.model.layers[2].mlp.down_proj.weight.grad
    assert gradient is not None
    assert gradient.any()


def test_the_grown_model_shares_nothing(model: LlamaForCausalLM) -> None:
    larger = grown(model, 6)
    before = model.model.layers[0].mlp.up_proj.weight.clone()
    with torch.no_grad():
        larger.model.layers[0].mlp.up_proj.weight.add_(1.0)
    assert torch.equal(model.model.layers[0].mlp.up_proj.weight, before)


@pytest.mark.parametrize("num_layers", [3, 9])
def test_too_few_or_too_many_layers_are_refused(model: LlamaForCausalLM, num_layers: int) -> None:
    with pytest.raises(ValueError, match=f"4 layers can grow to 4 to 8, not to {num_layers}"):
        grown(model, num_layers)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_both_parts_need_time(share: float) -> None:
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        Growth(share=share)
