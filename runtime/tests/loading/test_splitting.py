from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

from specdec import ModelError
from specdec_runtime.loading.splitting import split_arguments
from specdec_runtime.parallel.whole_module import whole_module


def llama(**keys: Any) -> hf.LlamaConfig:
    return hf.LlamaConfig(hidden_size=576, num_attention_heads=9, num_key_value_heads=3, **keys)


def test_heads_are_divided_among_the_ranks() -> None:
    assert split_arguments(llama(), "m", 3)["distributed_config"].tp_plan == "auto"
    with pytest.raises(ModelError, match=r"m: its 9 query heads .* 2 ranks: use tensor_parallel_size=1"):
        split_arguments(llama(), "m", 2)
    few = hf.LlamaConfig(num_attention_heads=8, num_key_value_heads=2)
    with pytest.raises(
        ModelError, match=r"its 2 key and value heads .* 4 ranks: use tensor_parallel_size=2 or 1"
    ):
        split_arguments(few, "m", 4)


def test_every_layer_is_divided() -> None:
    keys = {
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "attention_k_eq_v": True,
    }
    text = hf.Gemma4TextConfig(
        **keys, num_attention_heads=8, num_key_value_heads=4, num_global_key_value_heads=2
    )
    assert split_arguments(text, "m", 2)["distributed_config"].tp_plan == "auto"
    with pytest.raises(
        ModelError, match=r"its 2 key and value heads .* 4 ranks: use tensor_parallel_size=2 or 1"
    ):
        split_arguments(text, "m", 4)


def test_a_model_without_a_plan_is_refused() -> None:
    with pytest.raises(ModelError, match="no plan to split 'opt' models over ranks"):
        split_arguments(hf.OPTConfig(), "m", 2)


def test_a_module_that_is_whole_stays_itself() -> None:
    module = nn.Linear(2, 3)
    assert whole_module(module) is module
    assert torch.equal(whole_module(module)(torch.ones(1, 2)), module(torch.ones(1, 2)))


def test_states_are_not_split() -> None:
    with pytest.raises(ModelError, match="recurrent states, which are not split over ranks"):
        split_arguments(hf.Lfm2Config(num_hidden_layers=2, layer_types=["conv", "full_attention"]), "m", 2)
