"""The shipped target, loaded by plain `transformers` without a network."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

import specdec_zoo

ROOM_TO_GENERATE = 512


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    loaded = AutoTokenizer.from_pretrained(specdec_zoo.path(), local_files_only=True)
    assert isinstance(loaded, PreTrainedTokenizerFast)
    return loaded


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    loaded = AutoModelForCausalLM.from_pretrained(
        specdec_zoo.path(), local_files_only=True, dtype=torch.float32
    )
    assert isinstance(loaded, LlamaForCausalLM)
    return loaded


def test_stored_in_bfloat16() -> None:
    assert AutoModelForCausalLM.from_pretrained(specdec_zoo.path()).dtype == torch.bfloat16


def test_shape(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    config = model.config
    assert (config.vocab_size, len(tokenizer)) == (4096, 4096)
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (256, 15, 4)
    assert config.tie_word_embeddings
    assert config.max_position_embeddings == tokenizer.model_max_length == 1024
    assert config.eos_token_id == tokenizer.eos_token_id == model.generation_config.eos_token_id
    assert model.num_parameters() == specdec_zoo.manifest()["artefacts"]["target"]["num_parameters"]


def test_heldout_loss_is_as_recorded(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    recorded = specdec_zoo.manifest()["artefacts"]["target"]["heldout"]
    losses = []
    for prompt in specdec_zoo.prompts(recorded["prompts_measured"]):
        ids = tokenizer(prompt["prompt"], return_tensors="pt")["input_ids"]
        with torch.no_grad():
            losses.append(model(input_ids=ids, labels=ids).loss.item())
    mean = sum(losses) / len(losses)
    assert mean == pytest.approx(recorded["prompts_nats_per_token"], rel=0.002)
    # Prompts are short, so their tokens have less context than those of the full windows.
    assert 0.7 < mean / recorded["nats_per_token"] < 1.3


def test_model_beats_a_table_of_token_frequencies() -> None:
    recorded = specdec_zoo.manifest()["artefacts"]["target"]["heldout"]
    assert recorded["nats_per_token"] < 4.5, "frequencies of single tokens alone give 6.65 nats"


def test_every_prompt_leaves_room_to_generate(tokenizer: PreTrainedTokenizerFast) -> None:
    recorded = specdec_zoo.manifest()["prompts"]
    sizes = [len(tokenizer(prompt["prompt"])["input_ids"]) for prompt in specdec_zoo.prompts()]
    assert min(sizes) == recorded["tokens"]["min"] >= 20
    assert max(sizes) == recorded["tokens"]["max"] <= 1024 - ROOM_TO_GENERATE
    assert len(sizes) == recorded["count"]


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(
        st.one_of(st.characters(codec="utf-8"), st.sampled_from(" \t\n\r_x1(é漢🙂\u0301")), max_size=80
    )
)
def test_every_text_comes_back(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_heldout_prompts_come_back(tokenizer: PreTrainedTokenizerFast) -> None:
    for prompt in specdec_zoo.prompts():
        assert tokenizer.decode(tokenizer(prompt["prompt"])["input_ids"]) == prompt["prompt"]


@pytest.mark.parametrize("width", [4, 8, 12, 16])
def test_indentation_is_one_token(tokenizer: PreTrainedTokenizerFast, width: int) -> None:
    assert len(tokenizer.tokenize("\n" + " " * width)) == 1
    assert len(tokenizer.tokenize(" " * width)) == 1


def test_chat_template(tokenizer: PreTrainedTokenizerFast) -> None:
    messages = [{"role": "user", "content": "Write the function area: Return the area."}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert tokenizer.decode(ids) == "<|user|>Write the function area: Return the area.<|assistant|>"
    assert ids[0] == tokenizer.convert_tokens_to_ids("<|user|>")
    assert ids[-1] == tokenizer.convert_tokens_to_ids("<|assistant|>")


def test_generates_with_its_own_settings(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    batch = tokenizer("def main(", return_tensors="pt")
    out = model.generate(**batch, max_new_tokens=8)
    assert 1 <= out.shape[1] - batch["input_ids"].shape[1] <= 8
