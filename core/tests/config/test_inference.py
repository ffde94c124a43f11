"""Which method is meant, where none was named."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from specdec import ConfigError
from specdec.config import SpeculativeConfig
from specdec.config.inference import Inferred, infer_method
from specdec.registry.catalogue import known_methods

HEAD = ["fc.weight", "layers.0.self_attn.q_proj.weight"]
WHOLE_MODEL = ["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.norm.weight"]
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}


def infer(**keys: Any) -> Inferred:
    return infer_method(SpeculativeConfig(**keys))


def error_of(**keys: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        infer(**keys)
    return str(caught.value)


@pytest.mark.parametrize("model", ["pkg.mod.Class", "pkg.Class", "./my_file.py:Class"])
def test_a_dotted_path_is_a_class(model: str) -> None:
    assert (infer(model=model).method, infer(model=model).model) == ("custom_class", model)


def test_a_directory_with_dots_in_its_name_is_no_class(
    checkpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(checkpoint("tiny.llama", LLAMA, WHOLE_MODEL)).parent)
    assert infer(model="tiny.llama").method == "draft_model"


def test_the_name_of_prompt_lookup_is_no_model() -> None:
    assert (infer(model="ngram").method, infer(model="ngram").model) == ("ngram", None)
    for model in ("ngram", "[ngram]"):
        assert infer(method="ngram", model=model).model is None


def test_its_old_name_still_works_with_one_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"'model': '\[ngram\]' is now 'method': 'ngram'") as caught:
        assert infer(model="[ngram]") == infer(model="[ngram]") == infer(model="ngram")
    assert len(caught) == 1
    assert caught[0].filename == __file__, "the warning points at the caller"


@pytest.mark.parametrize("old", known_methods()["mtp"].old_names)
def test_every_old_name_of_mtp_is_mtp(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"method '{old}' is now called 'mtp'") as caught:
        assert infer(method=old).method == infer(method=old).method == "mtp"
    assert len(caught) == 1


@pytest.mark.parametrize("method", ["ngram", "suffix", "mtp"])
def test_these_need_no_model(method: str) -> None:
    assert infer(method=method, num_speculative_tokens=2).model is None


@pytest.mark.parametrize("method", ["draft_model", "eagle", "eagle3", "mlp_speculator", "mlp", "medusa"])
def test_these_need_a_draft(method: str) -> None:
    assert "needs a draft checkpoint as 'model'" in error_of(method=method, num_speculative_tokens=2)


def test_what_drafts_without_a_model_takes_none() -> None:
    assert error_of(method="suffix", model="gpt2") == (
        "speculative_config: 'model' = 'gpt2': method 'suffix' drafts without a model, leave it out"
    )
    assert infer(method="suffix", model="suffix").model is None


def test_a_class_needs_its_path() -> None:
    assert "needs the import path of a class as 'model'" in error_of(method="custom_class")


def test_nothing_given() -> None:
    needed = "speculative_config: needs a 'method' or a 'model'; methods: "
    assert error_of().startswith(needed)
    assert error_of(num_speculative_tokens=5).startswith(needed)


@pytest.mark.parametrize(
    ("config", "tensors", "method"),
    [
        ({"architectures": ["EagleLlamaForCausalLM"]}, [], "eagle"),
        ({"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}, [], "eagle3"),
        ({"architectures": ["Eagle3LlamaForCausalLM"]}, [], "eagle3"),
        ({"architectures": ["PEagleDraftModel"], "model_type": "llama"}, WHOLE_MODEL, "eagle3"),
        ({"architectures": ["DFlashDraftModel"], "model_type": "qwen3"}, [], "dflash"),
        ({"architectures": ["Qwen3DSparkModel"]}, [], "dflash"),
        ({"architectures": ["MLPSpeculatorPreTrainedModel"]}, [], "mlp_speculator"),
        ({"model_type": "eagle"}, [], "eagle"),
        ({"model_type": "medusa"}, [], "medusa"),
        ({"model_type": "mlp_speculator"}, [], "mlp_speculator"),
        ({"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}, [], "mtp"),
        ({"model_type": "qwen3_next_mtp"}, [], "mtp"),
        ({**LLAMA, "eagle_config": {}}, [], "eagle3"),
        ({"medusa_num_heads": 5}, [], "medusa"),
        (LLAMA, HEAD, "eagle"),
        (LLAMA, [*HEAD, "d2t"], "eagle3"),
        (LLAMA, ["fc.weight", "midlayer.self_attn.q_proj.weight"], "eagle3"),
        (LLAMA, [*HEAD, "hidden_norm.weight"], "dflash"),
        ({}, ["emb.0.weight", "head.0.weight", "ln.0.weight"], "mlp_speculator"),
        ({}, ["0.0.linear.weight", "0.1.weight"], "medusa"),
        ({}, ["mtp.fc.weight", "mtp.norm.weight"], "mtp"),
        (LLAMA, WHOLE_MODEL, "draft_model"),
        (
            {"model_type": "gpt2"},
            ["transformer.wte.weight", "transformer.h.0.mlp.c_fc.weight"],
            "draft_model",
        ),
        (LLAMA, [], "draft_model"),
    ],
)
def test_a_checkpoint_is_known_by_its_files(
    checkpoint: Any, config: dict[str, Any], tensors: list[str], method: str
) -> None:
    found = infer(model=checkpoint("some-draft", config, tensors))
    assert found.method == method


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("EAGLE-LLaMA3-8B", "eagle"),
        ("Qwen3-8B_eagle3", "eagle3"),
        ("Qwen3-DFlash", "dflash"),
        ("x-dspark", "dflash"),
    ],
)
def test_where_files_say_nothing_the_spelling_does(checkpoint: Any, name: str, method: str) -> None:
    assert infer(model=checkpoint(name, LLAMA)).method == method


MTP = (
    "DeepSeekMTPModel", "DeepseekV32MTPModel", "DeepSeekV4MTPModel", "MiMoMTPModel", "MiMoV2MTPModel", "Glm4MoeMTPModel",
    "Glm4MoeLiteMTPModel", "GlmOcrMTPModel", "ErnieMTPModel", "NemotronHMTPModel", "ExaoneMoeMTP", "Exaone4_5_MTP",
    "Qwen3NextMTP", "Qwen3_5MTP", "Qwen3_5MoeMTP", "Qwen4ExpMTP", "LongCatFlashMTPModel", "OpenPanguMTPModel", "Step3p5MTP",
    "HYV3MTPModel", "Gemma4MTPModel", "InklingMTPModel", "MiniMaxM3MTP", "KimiK3MTPModel",
)  # fmt: skip
ARCHITECTURES = dict.fromkeys(MTP, "mtp") | {
    "EagleLlamaForCausalLM": "eagle", "LlamaForCausalLMEagle": "eagle", "EagleDeepSeekMTPModel": "eagle",
    "LlamaForCausalLMEagle3": "eagle3", "Eagle3LlamaForCausalLM": "eagle3", "PEagleDraftModel": "eagle3",
    "DFlashDraftModel": "dflash", "MedusaModel": "medusa", "MLPSpeculatorPreTrainedModel": "mlp_speculator",
    "Qwen3DSparkModel": "dflash",
}  # fmt: skip
FOLDERS = (
    "eagle-x",
    "x-eagle3",
    "medusa",
    "draft",
    "ngram",
    "dflash-b16",
    "my-dspark",
    "mlp_speculator",
    "target",
    "a.b",
)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_architectures_say_more_than_the_spelling(checkpoint: Any, architecture: str) -> None:
    for folder in FOLDERS:
        model = checkpoint(folder, {"architectures": [architecture], "model_type": "llama"}, WHOLE_MODEL)
        assert infer(model=model).method == ARCHITECTURES[architecture]
        assert infer(model=Path(model)).model == model


@pytest.mark.parametrize("value", [5, 0.5, True, "DeepSeekMTPModel", {"x": 1}, [5], [None], [["x"]]])
def test_architectures_of_another_type_are_told(checkpoint: Any, value: object) -> None:
    said = f"'architectures' of its config.json is {value!r} instead of a list of names"
    assert said in error_of(model=checkpoint("x", {"architectures": value}))
    for name, nothing in (("y", None), ("z", [])):
        assert infer(model=checkpoint(name, {"architectures": nothing})).method == "draft_model"


def test_files_say_more_than_the_spelling(checkpoint: Any) -> None:
    assert infer(model=checkpoint("eagle-like-speed", LLAMA, WHOLE_MODEL)).method == "draft_model"
    assert infer(model=checkpoint("eagle-3", LLAMA, [*HEAD, "d2t"])).method == "eagle3"


def test_names_come_from_an_index_of_shards_too(checkpoint: Any) -> None:
    model = checkpoint("sharded", LLAMA)
    index = {"weight_map": dict.fromkeys([*HEAD, "d2t"], "model-00001-of-00002.safetensors")}
    (Path(model) / "model.safetensors.index.json").write_text(json.dumps(index))
    assert infer(model=model).method == "eagle3"


def test_a_method_that_was_given_is_never_replaced(checkpoint: Any, caplog: pytest.LogCaptureFixture) -> None:
    model = checkpoint("Llama-eagle3", {"architectures": ["LlamaForCausalLMEagle3"]})
    with caplog.at_level(logging.WARNING, "specdec"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert infer(method="draft_model", model=model).method == "draft_model"
    assert "looks like a checkpoint of method 'eagle3'; 'draft_model' is used as told" in caplog.text


def test_a_checkpoint_that_cannot_be_read(checkpoint: Any, tmp_path: Path) -> None:
    assert "there is no directory '/no/such/draft'; give 'method' as well" in error_of(model="/no/such/draft")
    assert f"{tmp_path} has no config.json; give 'method' as well" in error_of(model=str(tmp_path))
    broken = Path(checkpoint("broken", {}))
    (broken / "config.json").write_text("{")
    assert f"{broken / 'config.json'} cannot be read" in error_of(model=str(broken))
    (broken / "config.json").write_text("[" * 100_000)
    assert f"{broken / 'config.json'} cannot be read: maximum recursion" in error_of(model=str(broken))


def test_a_checkpoint_whose_tensors_cannot_be_read(checkpoint: Any) -> None:
    broken = Path(checkpoint("broken", LLAMA))
    weights = broken / "model.safetensors"
    deep = b"[" * 100_000
    for header in (
        (90_000_000).to_bytes(8, "little") + b"{}",  # more than the file has
        len(deep).to_bytes(8, "little") + deep,
        (2).to_bytes(8, "little") + b"[]",
    ):
        weights.write_bytes(header)
        assert f"{weights} is not a safetensors file" in error_of(model=str(broken))
    index = broken / "model.safetensors.index.json"
    for text, said in (
        ("{", "cannot be read"),
        ("[]", "does not hold a mapping"),
        ("{}", "has no 'weight_map'"),
    ):
        index.write_text(text)
        assert f"{index} {said}" in error_of(model=str(broken))


def test_a_hub_id_without_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    told = error_of(model="nobody/nothing")
    assert (
        "'nobody/nothing' is not a directory, and its config.json cannot be fetched from a hub or read from its cache"
        in told
    )
    assert infer(model="nobody/eagle3-nothing").method == "eagle3"


def test_a_method_that_core_knows_nothing_of_is_taken_as_it_is() -> None:
    assert infer(method="mine", model="x") == Inferred("mine", None, "x")


def test_the_zoo_needs_a_method() -> None:
    assert "'model': 'zoo' needs a 'method' beside it" in error_of(model="zoo")
    assert "method 'suffix' takes no draft from the zoo: leave 'model' out" in error_of(
        method="suffix", model="zoo"
    )


def test_the_zoo_has_a_draft_for_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    zoo = ModuleType("specdec_zoo")
    zoo.draft = lambda name, target: Path("/zoo") / {"draft": "draft"}[name]  # type: ignore[attr-defined]  # a stand-in
    monkeypatch.setitem(sys.modules, "specdec_zoo", zoo)
    assert infer(method="draft_model", model="zoo").model == "/zoo/draft"
    assert "'model': 'zoo': 'eagle3'" in error_of(method="eagle3", model="zoo")
