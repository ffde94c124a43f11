"""Which assistants are taken for which targets, and what is said of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from mtp_check.assistants import HIDDEN, VOCAB_SIZE, Pair, make_pair
from mtp_check.targets import rewrite_config
from safetensors.torch import load_file, save_file

from specdec import LLM, ConfigError, ModelError
from specdec.config import SpeculativeConfig, infer_method
from specdec_plugin_mtp.assistant.proposer import AssistantProposer


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Pair:
    return make_pair("dense", tmp_path_factory.mktemp("dense"), is_ordered=True)


@pytest.fixture
def own(tmp_path) -> Pair:
    """A pair whose files a test may change."""
    return make_pair("dense", tmp_path, is_ordered=True)


def load(target: Path | str, assistant: Path, **keys: Any) -> LLM:
    known = {"dtype": "float32", "skip_tokenizer_init": True}
    config = {"method": "mtp", "model": str(assistant), "num_speculative_tokens": 2, **keys}
    return LLM(model=str(target), speculative_config=config, **known)


@pytest.mark.parametrize("kind", ["dense", "unified"])
def test_the_method_is_told_by_the_files(tmp_path, kind):
    pair = make_pair(kind, tmp_path)
    assert infer_method(SpeculativeConfig(model=str(pair.assistant))).method == "mtp"
    known = {"dtype": "float32", "skip_tokenizer_init": True}
    llm = LLM(model=str(pair.target), speculative_config={"model": str(pair.assistant)}, **known)
    proposer = llm._built.engine.proposer
    assert type(proposer) is AssistantProposer
    assert proposer.config.num_speculative_tokens == 1, "n_predict, as vLLM has it"


def test_a_vllm_name(pair):
    with pytest.warns(DeprecationWarning, match="is now called 'mtp'"):
        llm = load(pair.target, pair.assistant, method="gemma4_mtp")
    assert type(llm._built.engine.proposer) is AssistantProposer


@pytest.mark.parametrize(
    ("kind", "changed", "wrong"),
    [
        ("dense", {"backbone_hidden_size": HIDDEN + 8}, "backbone_hidden_size is 40, this target's is 32"),
        ("dense", {"vocab_size": VOCAB_SIZE + 12}, "vocab_size is 108, this target's is 96"),
        ("dense", {"head_dim": 4}, "reads 2 heads of 4 numbers where this target's layer 2 has 2 of 8"),
        (
            "dense",
            {"num_global_key_value_heads": 2},
            "reads 2 heads of 16 numbers where this target's layer 3 has 1 of 16",
        ),
    ],
)
def test_an_assistant_of_another_target(pair, tmp_path, kind, changed, wrong):
    other = make_pair(kind, tmp_path, **changed)
    with pytest.raises(ConfigError, match=wrong):
        load(pair.target, other.assistant)


def test_layers_of_a_type_that_the_target_does_not_have(tmp_path):
    pair = make_pair("full", tmp_path)
    with pytest.raises(
        ConfigError,
        match=r"layers of type 'sliding_attention', and this target caches .*'full_attention' only",
    ):
        load(pair.target, pair.assistant)


def test_a_target_of_another_family(pair):
    with pytest.raises(ConfigError, match="of a Gemma 4 target, and this target's model_type is 'llama'"):
        load("zoo", pair.assistant)


@pytest.mark.parametrize("keys", [{"tree_top_k": 2}, {"tree_choices": [[0], [1]]}])
def test_trees(pair, keys):
    with pytest.raises(ConfigError, match="drafts chains"):
        load(pair.target, pair.assistant, **keys)


def damaged(own: Pair, change: Any) -> None:
    file = own.assistant / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


DAMAGE: dict[str, tuple[Any, str]] = {
    "missing": (lambda found: found.pop("pre_projection.weight"), "pre_projection.weight"),
    "of another size": (
        lambda found: found.update({"post_projection.weight": torch.zeros(HIDDEN, 7)}),
        "1 of another shape, post_projection.weight",
    ),
    "ids named twice": (
        lambda found: found["masked_embedding.token_ordering"].fill_(3),
        "does not name every id once",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_weights(own, what):
    change, wrong = DAMAGE[what]
    damaged(own, change)
    with pytest.raises(ModelError, match=wrong):
        load(own.target, own.assistant)


def test_other_damaged_files(own):
    rewrite_config(own.assistant, {"quantization_config": {"quant_method": "fp8"}})
    with pytest.raises(ModelError, match="is quantised"):
        load(own.target, own.assistant)
    (own.assistant / "model.safetensors").write_bytes(b"\0" * 9)
    with pytest.raises((ConfigError, ModelError), match=r"model\.safetensors"):
        load(own.target, own.assistant)
    config = json.loads((own.assistant / "config.json").read_text())
    config["text_config"]["num_attention_heads"] = "many"
    (own.assistant / "config.json").write_text(json.dumps(config))
    with pytest.raises((ConfigError, ModelError)):
        load(own.target, own.assistant)


def test_new_weights_of_the_target_are_followed(own):
    llm = load(own.target, own.assistant)
    tensors = load_file(own.target / "model.safetensors")
    llm.update_weights({name: weight.clone() for name, weight in tensors.items()})
    ids = llm.generate([{"prompt_token_ids": [1, 2, 3]}])[0]
    assert ids.metrics.num_draft_tokens > 0
    llm.sleep()
    llm.wake_up()
    assert llm.generate([{"prompt_token_ids": [1, 2, 3]}])[0].metrics.num_draft_tokens > 0
