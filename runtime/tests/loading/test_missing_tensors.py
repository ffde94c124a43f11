"""A checkpoint that lacks tensors of its model is refused: transformers would fill them with random numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from speccheck.engines import greedy, make_llm, tokens_of
from speccheck.identity import references
from speccheck.models import BASE, make, prompts, tiny

from specdec import LLM, ModelError

Tensors = dict[str, torch.Tensor]


def folder(path: Path, model: hf.PreTrainedModel, edit: Callable[[Tensors], Tensors]) -> str:
    """Save a model and change the tensors in its file."""
    model.save_pretrained(path)
    file = path / "model.safetensors"
    save_file(edit(load_file(file)), file, metadata={"format": "pt"})
    return str(path)


def refusal(path: str, **arguments: Any) -> str:
    with pytest.raises(ModelError) as caught:
        LLM(path, **{"skip_tokenizer_init": True, "max_num_seqs": 2} | arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def without(part: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: value for name, value in tensors.items() if part not in name}


def test_no_output_projection(tmp_path) -> None:
    told = refusal(folder(tmp_path, tiny("llama"), without("lm_head")))
    assert "of the tensors of LlamaForCausalLM 1 missing, 'lm_head.weight':" in told
    assert "fetch the files again" in told


def test_one_tensor_of_a_layer(tmp_path) -> None:
    told = refusal(folder(tmp_path, tiny("llama"), without("layers.1.self_attn.q_proj")))
    assert "1 missing, 'model.layers.1.self_attn.q_proj.weight':" in told


def test_every_name_prefixed(tmp_path) -> None:
    told = refusal(
        folder(tmp_path, tiny("llama"), lambda tensors: {f"net.{k}": v for k, v in tensors.items()})
    )
    assert (
        "'lm_head.weight', 'model.embed_tokens.weight', 'model.layers.0.input_layernorm.weight' and " in told
    )
    assert "nearest to the first is 'net.lm_head.weight'" in told


def test_a_tensor_of_another_shape(tmp_path) -> None:
    def cut(tensors: Tensors) -> Tensors:
        return {k: v[:-1].clone() if "1.self_attn.q_proj" in k else v for k, v in tensors.items()}

    told = refusal(folder(tmp_path, tiny("llama"), cut))
    assert "model.layers.1.self_attn.q_proj.weight [31, 32] instead of [32, 32]" in told


def test_a_draft_model(tmp_path) -> None:
    path = folder(tmp_path, tiny("llama"), without("layers.0.mlp.up_proj"))
    speculation = {"method": "draft_model", "model": path, "num_speculative_tokens": 2}
    assert "missing, 'model.layers.0.mlp.up_proj.weight'" in refusal(
        tiny("llama"), speculative_config=speculation
    )


@pytest.mark.parametrize("part", ["lm_head", "embed_tokens"])
def test_one_of_two_tied_tensors_is_enough(part, tmp_path) -> None:
    model = make(hf.LlamaConfig(**BASE | {"tie_word_embeddings": True}))

    def both_but_one(tensors: Tensors) -> Tensors:
        weight = tensors["model.embed_tokens.weight"]
        return without(part)({**tensors, "lm_head.weight": weight.clone()})

    many = prompts([20])
    llm = make_llm(folder(tmp_path, model, both_but_one), dtype="float32")
    assert tokens_of(llm, many, greedy(8)) == references(model, many, 8)


def test_neither_of_two_tied_tensors(tmp_path) -> None:
    model = make(hf.LlamaConfig(**BASE | {"tie_word_embeddings": True}))
    assert "model.embed_tokens.weight" in refusal(folder(tmp_path, model, without("embed_tokens")))
