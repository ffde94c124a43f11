"""What is read, what stands for what, and what is said of checkpoints that do not fit: one sentence each."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from mtp_check.targets import HIDDEN, VOCAB_SIZE, MadeTarget, rewrite_config
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from specdec import LLM, ConfigError, ModelError, SamplingParams
from specdec_plugin_mtp import MtpHead, MtpProposer

Change = Callable[[dict[str, torch.Tensor]], object]


def load(target: object, /, **keys: Any) -> MtpProposer:
    config = {"method": "mtp", "on_proposer_error": "raise", **keys}
    llm = LLM(model=target, dtype="float32", skip_tokenizer_init=True, speculative_config=config)
    llm.generate([{"prompt_token_ids": [3, 4, 5]}], SamplingParams(max_tokens=8, ignore_eos=True))
    proposer = llm._built.engine.proposer
    assert isinstance(proposer, MtpProposer)
    return proposer


def head_of(proposer: MtpProposer) -> MtpHead:
    assert isinstance(proposer._head, MtpHead)
    return proposer._head


@pytest.fixture
def changed(made, tmp_path) -> Callable[..., Path]:
    """Return a maker of a target whose tensors or configuration are not as they were."""

    def make(kind: str, change: Change = dict, **keys: Any) -> Path:
        folder = tmp_path / kind
        shutil.copytree(made(kind).folder, folder)
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        rewrite_config(folder, keys)
        return folder

    return make


def refused(target: object, /, **keys: Any) -> str:
    with pytest.raises(ModelError) as caught:
        load(target, **keys)
    text = str(caught.value)
    assert "\n" not in text
    assert ": " in text
    assert not text.endswith(".")
    return text


@pytest.mark.parametrize("kind", ["llama", "deepseek_v3", "glm4_moe", "mimo", "ernie"])
def test_as_many_tokens_as_the_target_has_layers(made, kind):
    for num_layers in (1, 2):
        target: MadeTarget = made(kind, num_layers)
        proposer = load(str(target.folder))
        assert proposer._config.num_speculative_tokens == num_layers
        head = head_of(proposer)
        assert head.num_stages == num_layers
        assert not head.training
        learnt = [name for name, parameter in head.named_parameters() if parameter.requires_grad]
        assert all("embed_tokens" in name or "lm_head" in name for name in learnt)


@pytest.mark.parametrize(
    ("old", "kind"), [("deepseek_mtp", "deepseek_v3"), ("mimo_mtp", "mimo"), ("ernie_mtp", "ernie")]
)
def test_old_names(made, old, kind):
    with pytest.warns(DeprecationWarning, match=f"method '{old}' is now called 'mtp'"):
        proposer = load(str(made(kind).folder), method=old, num_speculative_tokens=2)
    assert head_of(proposer).layout.family.lower() in kind


def test_more_tokens_than_layers_is_said_once(made, caplog):
    with caplog.at_level(logging.WARNING, "specdec"):
        load(str(made("llama").folder))
        load(str(made("llama", 2).folder))
        assert "multi-token-prediction" not in caplog.text
        load(str(made("llama", 2).folder), num_speculative_tokens=4)
    said = [record.getMessage() for record in caplog.records if "multi-token" in record.getMessage()]
    assert said == [
        "mtp: num_speculative_tokens=4 with 2 multi-token-prediction layers: they run again on their own output, which lowers "
        "acceptance of the later tokens"
    ]


def test_a_multiple_of_the_layers(made):
    with pytest.raises(ConfigError, match="must be divisible by n_predict = 2"):
        load(str(made("llama", 2).folder), num_speculative_tokens=5)


def test_static_trees_need_one_layer(made):
    with pytest.raises(ConfigError, match="tree_choices needs a head of one stage, this one has 2"):
        load(str(made("llama", 2).folder), num_speculative_tokens=2, tree_choices=[[0], [1]])


OWN = [f"model.layers.2.{name}.weight" for name in ("embed_tokens", "shared_head.head")]


@pytest.mark.parametrize("kind", ["llama", "deepseek_v3"])
def test_the_same_embedding_and_projection_again(changed, kind):
    """Published checkpoints repeat the target's, which are shared and not held twice."""

    def repeat(tensors: dict[str, torch.Tensor]) -> None:
        for name, source in zip(OWN, ("model.embed_tokens.weight", "lm_head.weight"), strict=True):
            tensors[name] = tensors[source].clone()

    llm = LLM(
        model=str(changed(kind, repeat)),
        dtype="float32",
        skip_tokenizer_init=True,
        speculative_config={"method": "mtp"},
    )
    stage = head_of(llm._built.engine.proposer).stage(0)
    target = llm._built.engine._scorer.target.model
    assert stage.embed_tokens is target.get_input_embeddings()
    assert stage.lm_head is target.get_output_embeddings()


@pytest.mark.parametrize("kind", ["llama", "deepseek_v3"])
def test_own_embedding_and_projection(changed, kind):
    others = [torch.randn(VOCAB_SIZE, HIDDEN) for _ in OWN]
    proposer = load(str(changed(kind, lambda tensors: tensors.update(zip(OWN, others, strict=True)))))
    stage = head_of(proposer).stage(0)
    assert torch.equal(stage.embed_tokens.weight, others[0])
    assert torch.equal(stage.lm_head.weight, others[1])


def test_layers_in_a_directory_of_their_own(made, tmp_path):
    """Counted on from the target's, or from 0; for a target in memory too."""
    target = made("llama", 2)
    for first in (0, 2):
        own = tmp_path / str(first)
        own.mkdir()
        tensors = {
            name.replace(f"layers.{2 + i}.", f"layers.{first + i}."): weight
            for i in range(2)
            for name, weight in target.tensors.items()
            if name.startswith(f"model.layers.{2 + i}.")
        }
        save_file(tensors, own / "model.safetensors")
        (own / "config.json").write_text(json.dumps({"num_nextn_predict_layers": 2}))
        model = AutoModelForCausalLM.from_pretrained(target.folder, dtype=torch.float32)
        for given in (model, str(target.folder)):
            head = head_of(load(given, model=str(own)))
            assert head.num_stages == 2
            assert torch.equal(head.stage(1).join.weight, target.weight("join", 1))


def test_the_target_as_model(made):
    folder = str(made("llama").folder)
    assert head_of(load(folder, model=folder)).num_stages == 1


def test_a_target_in_memory(made):
    model = AutoModelForCausalLM.from_pretrained(made("llama").folder, dtype=torch.float32)
    text = refused(model, num_speculative_tokens=1)
    assert text.startswith("mtp: the target was passed as an object")


def test_a_target_without_layers(changed):
    def without(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if name.startswith("model.layers.2.")]:
            del tensors[name]

    text = refused(str(changed("llama", without)))
    assert "(model_type 'llama') has no multi-token-prediction layers of a known kind" in text
    assert "model.layers.2.eh_proj.weight" in text


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("llama", "model.layers.2.hnorm.weight"),
        ("llama", "model.layers.2.shared_head.norm.weight"),
        ("deepseek_v3", "model.layers.2.mlp.experts.3.up_proj.weight"),
        ("deepseek_v3", "model.layers.2.mlp.gate.e_score_correction_bias"),
        ("mimo", "model.mtp_layers.0.self_attn.q_proj.bias"),
        ("ernie", "model.mtp_hidden_norm.0.weight"),
    ],
)
def test_a_tensor_is_missing(changed, kind, name):
    assert f"has no tensor {name!r}" in refused(str(changed(kind, lambda tensors: tensors.pop(name))))


@pytest.mark.parametrize(
    ("kind", "name"),
    [("llama", "model.layers.2.eh_proj.weight"), ("glm4_moe", "model.layers.2.mlp.experts.0.up_proj.weight")],
)
def test_a_shape_is_wrong(changed, kind, name):
    folder = changed(kind, lambda tensors: tensors.update({name: torch.ones(3, 5)}))
    assert f"tensor {name!r} has shape [3, 5] instead of [" in refused(str(folder))


def test_own_projection_of_another_vocabulary(changed):
    name = "model.layers.2.shared_head.head.weight"
    folder = changed("llama", lambda tensors: tensors.update({name: torch.ones(5, HIDDEN)}))
    assert f"tensor {name!r} has shape [5, 32] instead of [97, 32]" in refused(str(folder))


def test_a_tensor_nobody_knows(changed):
    name = "model.layers.2.self_attn.q_norm.weight"
    folder = changed("llama", lambda tensors: tensors.update({name: torch.ones(8)}))
    assert f"tensor {name!r} has no place in layers of this kind" in refused(str(folder))


def test_quantised_layers(changed):
    name = "model.layers.2.mlp.up_proj.weight_scale_inv"
    folder = changed("llama", lambda tensors: tensors.update({name: torch.ones(1, 1)}))
    assert f"layers are quantised ({name})" in refused(str(folder))


def test_the_configuration_says_another_number(changed):
    folder = changed("llama", num_nextn_predict_layers=2)
    assert "config.json says 2 multi-token-prediction layers, the weights have 1" in refused(str(folder))


def test_without_the_key_the_tensors_are_counted(changed):
    folder = changed("llama", num_nextn_predict_layers=None)
    with pytest.raises(ConfigError, match="'num_speculative_tokens' is missing"):
        load(str(folder))
    assert head_of(load(str(folder), num_speculative_tokens=1)).num_stages == 1


def test_a_directory_that_holds_nothing(made, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"num_nextn_predict_layers": 1}))
    text = refused(str(made("llama").folder), model=str(tmp_path))
    assert "has no *.safetensors" in text


def test_names_of_a_layout_in_a_target_of_another_family(changed):
    """K-EXAONE's layers have the names of Qwen3-Next's, but windows and positions of their own."""

    def renamed(tensors: dict[str, torch.Tensor]) -> None:
        around = {
            "eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "shared_head.norm": "norm"
        }  # fmt: skip
        for name in [name for name in tensors if name.startswith("model.layers.2.")]:
            part = name.removeprefix("model.layers.2.").removesuffix(".weight")
            tensors[f"mtp.{around.get(part, f'layers.0.{part}')}.weight"] = tensors.pop(name)

    told = refused(str(changed("llama", renamed)))
    assert "(model_type 'llama') has multi-token-prediction layers with the names of Qwen3-Next's" in told
    assert "known of qwen3_next, qwen3_5_text, qwen3_5_moe_text only" in told
