"""MLP speculators on disk: prefixes, shards, ties, round trips, and what is said of files that do not fit."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from speccheck.engines import zoo

from specdec import LLM, ConfigError, ModelError
from specdec_plugin_mlp import (
    MLPSpeculator,
    MLPSpeculatorLayout,
    load_mlp_speculator,
    save_mlp_speculator,
)
from specdec_runtime.drafting import HeadCheckpoint

SHAPES = [{}, {"tie_weights": True, "scale_input": True}]


def load(folder: Path) -> MLPSpeculator:
    return load_mlp_speculator(HeadCheckpoint(str(folder)))


def rewrite(folder: Path, change) -> None:
    """Write tensors and configuration again, changed."""
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    change(tensors, config)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


def logits_of(heads: MLPSpeculator) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    states = torch.randn(4, heads.layout.emb_dim, generator=generator)
    tokens = torch.randint(0, heads.layout.vocab_size, (4, heads.num_heads), generator=generator)
    return heads(states, tokens)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_saved_is_what_is_loaded(tmp_path, shape, dtype):
    layout = MLPSpeculatorLayout(vocab_size=50, emb_dim=16, inner_dim=8, n_predict=3, **shape)
    heads = MLPSpeculator(layout).to(dtype)
    save_mlp_speculator(heads, tmp_path / "new" / "folder")
    found = load(tmp_path / "new" / "folder")
    assert found.layout == layout
    assert not found.training
    assert not any(parameter.requires_grad for parameter in found.parameters())
    assert torch.equal(logits_of(found), logits_of(heads))
    assert [name for name, _ in found.named_parameters()] == [name for name, _ in heads.named_parameters()]
    for name, parameter in heads.named_parameters():
        assert torch.equal(found.get_parameter(name), parameter)
        assert found.get_parameter(name).dtype == dtype


def test_the_files_are_those_that_are_published(make_heads):
    folder = make_heads(n_predict=4, inner_dim=0, emb_dim=64)
    config = json.loads((folder / "config.json").read_text())
    assert config == {
        "architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator", "vocab_size": 4096, "emb_dim": 64,
        "inner_dim": 0, "n_predict": 4, "tie_weights": False, "scale_input": False, "n_candidates": 5,
        "top_k_tokens_per_head": [5, 4, 3, 2], "torch_dtype": "float32",
    }  # fmt: skip
    names = {f"speculator.{part}.{i}.weight" for part in ("emb", "proj", "ln", "head") for i in range(4)}
    tensors = load_file(folder / "model.safetensors")
    assert set(tensors) == names | {f"speculator.ln.{i}.bias" for i in range(4)}
    assert tensors["speculator.emb.3.weight"].shape == tensors["speculator.head.3.weight"].shape == (4096, 64)


def test_tied_heads_are_stored_once(make_heads):
    tensors = load_file(make_heads(tie_weights=True) / "model.safetensors")
    assert set(tensors) == {
        f"speculator.{name}"
        for name in ("emb.0.weight", "proj.0.weight", "proj.1.weight", "ln.0.weight", "ln.0.bias", "head.0.weight")
    }  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_names_without_the_prefix(make_heads, shape):
    folder = make_heads(**shape)
    wanted = logits_of(load(folder))

    def strip(tensors, config):
        for name in list(tensors):
            tensors[name.removeprefix("speculator.")] = tensors.pop(name)

    rewrite(folder, strip)
    assert torch.equal(logits_of(load(folder)), wanted)


@pytest.mark.parametrize("shape", SHAPES)
def test_shards(make_heads, shape):
    folder = make_heads(**shape)
    wanted = logits_of(load(folder))
    weight_map = {}
    for number, (name, tensor) in enumerate(load_file(folder / "model.safetensors").items()):
        weight_map[name] = f"model-{number:05}.safetensors"
        save_file({name: tensor}, folder / weight_map[name])
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "model.safetensors").unlink()
    assert torch.equal(logits_of(load(folder)), wanted)


@pytest.mark.parametrize("kept", ["all", "last"])
def test_tied_heads_may_be_stored_under_any_or_all_of_their_names(make_heads, kept):
    folder = make_heads(tie_weights=True)
    wanted = logits_of(load(folder))

    def spread(tensors, config):
        for name in list(tensors):
            prefix, part, index, rest = name.split(".")
            if (part, index) == ("proj", "0"):
                continue
            for other in (1, 2):
                tensors[f"{prefix}.{part}.{other}.{rest}"] = tensors[name].clone()
            if kept == "last":
                for other in (0, 1):
                    tensors.pop(f"{prefix}.{part}.{other}.{rest}", None)

    def without_first_projection(tensors, config):
        first = tensors["speculator.proj.0.weight"]
        spread(tensors, config)
        tensors["speculator.proj.0.weight"] = first

    rewrite(folder, without_first_projection)
    assert torch.equal(logits_of(load(folder)), wanted)


def test_heads_that_are_not_tied_though_the_configuration_says_so(make_heads):
    folder = make_heads()
    rewrite(folder, lambda tensors, config: config.update(tie_weights=True))
    with pytest.raises(
        ModelError, match=r"tie_weights = true, but tensors 'emb.0.weight' and 'emb.1.weight' differ"
    ):
        load(folder)


def test_left_out_keys_have_the_published_defaults():
    layout = MLPSpeculatorLayout()
    assert (layout.vocab_size, layout.emb_dim, layout.width, layout.n_predict) == (32000, 4096, 4096, 3)
    assert (layout.tie_weights, layout.scale_input) == (False, False)


def test_tensors_that_no_head_takes_are_told(make_heads, caplog):
    folder = make_heads()
    with caplog.at_level(logging.WARNING, "specdec"):
        load(folder)
        assert not caplog.messages
        rewrite(folder, lambda tensors, config: tensors.update({"speculator.proj.0.bias": torch.zeros(24)}))
        load(folder)
    assert caplog.messages == [f"{folder}: no head takes 1 of its tensors, speculator.proj.0.bias among them"]


def refuse(folder: Path, error: type[Exception], *said: str, **keys: object) -> None:
    config = {"method": "mlp_speculator", "model": str(folder), **keys}
    with pytest.raises(error) as caught:
        LLM(zoo(), speculative_config=config)
    text = str(caught.value)
    assert [part for part in said if part not in text] == [], text
    assert "\n" not in text


def pop(name: str):
    return lambda tensors, config: tensors.pop(f"speculator.{name}")


def narrow(name: str):
    def change(tensors, config):
        tensors[f"speculator.{name}"] = tensors[f"speculator.{name}"][:-1]

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (pop("head.2.weight"), ["has no tensor 'speculator.head.2.weight'", "config.json does not belong"]),
        (pop("ln.0.bias"), ["has no tensor 'speculator.ln.0.bias'"]),
        (narrow("proj.1.weight"), ["'speculator.proj.1.weight' has shape [23, 24] instead of [24, 24]"]),
        (narrow("emb.0.weight"), ["'speculator.emb.0.weight' has shape [4095, 24] instead of [4096, 24]"]),
        (lambda t, c: c.update(n_predict=4), ["has no tensor 'speculator.emb.3.weight'"]),
        (lambda t, c: c.update(inner_dim=0), ["has shape [4096, 24] instead of [4096, 256]"]),
        (lambda t, c: c.update(n_predict=0), ["config.json: 'n_predict' = 0", "greater than 0"]),
        (lambda t, c: c.update(scale_input="often"), ["config.json: 'scale_input' = 'often'"]),
        (lambda t, c: c.update(n_predict=1, tie_weights=True), ["tie_weights needs n_predict of at least 2"]),
    ],
)  # fmt: skip
@pytest.mark.sampled(4, slow=5)
def test_what_does_not_fit_is_named(make_heads, change, said):
    folder = make_heads()
    rewrite(folder, change)
    refuse(folder, ModelError, str(folder), *said)


def test_heads_of_another_target(make_heads):
    refuse(make_heads(2, emb_dim=128), ConfigError, "hidden states of size 128", "the target have 256: take")
    refuse(
        make_heads(3, vocab_size=4000), ConfigError, "vocabulary of 4000 ids, the target one of 4096: take"
    )


def test_damaged_and_foreign_files(make_heads, tmp_path):
    folder = make_heads()
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])
    refuse(folder, ModelError, str(file), "cut short")
    file.rename(folder / "pytorch_model.bin")
    refuse(folder, ModelError, "pytorch_model.bin is a pickle, and only safetensors are read: convert it")
    (folder / "pytorch_model.bin").unlink()
    refuse(folder, ModelError, str(folder), "has no *.safetensors")
    (folder / "config.json").unlink()
    refuse(folder, ModelError, str(folder), "has no config.json")
    refuse(tmp_path / "nowhere", ModelError, "there is no directory")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"num_speculative_tokens": 6}, ["'num_speculative_tokens' = 6", "the 3 heads", "use 3 or less"]),
        ({"num_speculative_tokens": 4}, ["'num_speculative_tokens' = 4", "n_predict = 3"]),
        ({"num_speculative_tokens": 9, "tree_top_k": 2}, ["'num_speculative_tokens' = 9", "2 tokens each", "use 6 or less"]),
        ({"tree_top_k": 0}, ["tree_top_k"]),
        ({"draft_confidence_threshold": -0.1}, ["draft_confidence_threshold"]),
        ({"quantization": "awq"}, ["does not support 'quantization'"]),
        ({"parallel_drafting": True}, ["does not support 'parallel_drafting'"]),
        ({"draft_sample_method": "coupled", "rejection_sample_method": "block"}, ["coupled"]),
        ({"tree_topk": 2}, ["did you mean 'tree_top_k'?"]),
    ],
)  # fmt: skip
def test_wrong_keys_are_named(make_heads, keys, said):
    refuse(make_heads(), ConfigError, *said, **keys)
