"""Medusa heads: the formula, every spelling of their files, what does not fit, and drafts in the engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from speccheck.engines import zoo

from specdec import LLM, ConfigError, ModelError, SamplingParams
from specdec_plugin_mlp import Medusa, MedusaLayout, load_medusa
from specdec_runtime.drafting import HeadCheckpoint

H, V, HEADS, LAYERS = 16, 40, 3, 2
CONFIG = {
    "model_type": "medusa",
    "hidden_size": H,
    "vocab_size": V,
    "num_heads": HEADS,
    "num_hidden_layers": LAYERS,
}
MAP = torch.tensor([3, 39, 0, 7, 20])
Tensors = dict[str, torch.Tensor]


@pytest.fixture
def tensors() -> Tensors:
    """Random heads with biases, as vLLM names them."""
    torch.manual_seed(5)
    found = {f"lm_heads.{i}.weight": torch.randn(V, H) for i in range(HEADS)}
    for i in range(HEADS):
        for j in range(LAYERS):
            found[f"blocks.{i}.layers.{j}.weight"] = 0.3 * torch.randn(H, H)
            found[f"blocks.{i}.layers.{j}.bias"] = 0.3 * torch.randn(H)
    return found


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., HeadCheckpoint]:
    """Return a writer of checkpoints."""

    def write(tensors: Tensors, config: Mapping[str, Any] = CONFIG, **keys: Any) -> HeadCheckpoint:
        (tmp_path / "config.json").write_text(json.dumps({**config, **keys}))
        save_file({name: t.clone() for name, t in tensors.items()}, tmp_path / "model.safetensors")
        return HeadCheckpoint(str(tmp_path))

    return write


def reference(tensors: Tensors, state: torch.Tensor, head: int) -> torch.Tensor:
    """Return the logits `[V]` of one head on a state `[H]`."""
    x = state
    for layer in range(LAYERS):
        name = f"blocks.{head}.layers.{layer}"
        y = tensors[f"{name}.weight"] @ x + tensors.get(f"{name}.bias", torch.zeros(H))
        x = x + y / (1 + torch.exp(-y))
    return tensors[f"lm_heads.{head}.weight"] @ x


def check(
    heads: Medusa, tensors: Tensors, ids: torch.Tensor | slice = slice(None), scale: float = 1.0
) -> None:
    states = torch.randn(4, H)
    logits = heads(states)
    for row in range(4):
        for head in range(heads.num_heads):
            wanted = scale * reference(tensors, states[row], head)[ids]
            torch.testing.assert_close(logits[row, head], wanted, atol=1e-5, rtol=0)


def as_first_published(tensors: Tensors) -> Tensors:
    renamed = {}
    for name, tensor in tensors.items():
        part, head, *rest = name.split(".")
        renamed[f"{head}.{rest[1]}.linear.{rest[2]}" if part == "blocks" else f"{head}.{LAYERS}.weight"] = (
            tensor
        )
    return renamed


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("prefix", ["", "medusa_heads.", "medusa_head."])
@pytest.mark.parametrize("spelling", [dict, as_first_published])
def test_every_spelling_gives_the_same_heads(tensors, write, spelling, prefix, has_bias):
    if not has_bias:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith("bias")}
    stored = {prefix + name: tensor for name, tensor in spelling(tensors).items()}
    heads, token_map = load_medusa(write(stored, medusa_fc_bias=has_bias))
    assert token_map is None
    assert heads.num_heads == HEADS
    assert not any(parameter.requires_grad for parameter in heads.parameters())
    check(heads, tensors)


def test_a_first_configuration_without_sizes_and_with_fewer_heads_than_the_file(tensors, write):
    old = {"medusa_num_heads": 2, "medusa_num_layers": LAYERS, "base_model_name_or_path": "owner/target"}
    heads, _ = load_medusa(write(as_first_published(tensors), old))
    assert heads.layout == MedusaLayout(
        hidden_size=H, vocab_size=V, num_heads=HEADS, num_hidden_layers=LAYERS, medusa_fc_bias=True
    )
    check(heads, tensors)
    assert load_medusa(write(as_first_published(tensors), {}))[0].layout == heads.layout


def test_only_the_heads_that_are_asked_for_are_read(tensors, write):
    for name in ("blocks.2.layers.0.weight", "lm_heads.2.weight"):
        del tensors[name]
    heads, _ = load_medusa(write(tensors), max_heads=2)
    assert heads.num_heads == 2
    check(heads, tensors)
    assert load_medusa(write(tensors), max_heads=1)[0].num_heads == 1


@pytest.mark.parametrize("name", ["lm_heads.0.weight", "lm_head.weight"])
def test_one_output_for_all_heads(tensors, write, name):
    output = tensors["lm_heads.0.weight"]
    for head in range(HEADS):
        tensors[f"lm_heads.{head}.weight"] = output
    stored = {key: tensor for key, tensor in tensors.items() if not key.startswith("lm_heads")} | {
        name: output
    }
    heads, _ = load_medusa(write(stored, original_lm_head=True))
    assert heads.lm_heads[2] is heads.lm_heads[0]
    check(heads, tensors)


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_map_of_frequent_ids(tensors, write, is_cut):
    stored = {n: t[MAP] if is_cut and n.startswith("lm_heads") else t for n, t in tensors.items()}
    heads, token_map = load_medusa(write(stored | {"token_map": MAP}, truncated_vocab_size=5))
    assert torch.equal(token_map, MAP)
    check(heads, tensors, MAP)


def test_the_first_ids_where_there_is_no_map(tensors, write):
    heads, token_map = load_medusa(write(tensors, truncated_vocab_size=7))
    assert token_map.tolist() == list(range(7))
    check(heads, tensors, slice(7))


def test_a_map_of_all_ids_is_none_and_logits_are_scaled(tensors, write):
    stored = tensors | {"token_map": torch.arange(V)}
    heads, token_map = load_medusa(write(stored, truncated_vocab_size=V, logit_scale=0.25))
    assert token_map is None
    check(heads, tensors, scale=0.25)


def test_what_is_asked_for_reaches_the_weights(tensors, write):
    heads, _ = load_medusa(write(tensors), dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in heads.parameters()} == {torch.bfloat16}


def gone(name: str) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.pop(name)


@pytest.mark.parametrize(
    ("change", "keys", "said"),
    [
        (gone("blocks.1.layers.0.weight"), {}, "has no tensor 'blocks.1.layers.0.weight'"),
        (gone("blocks.1.layers.1.bias"), {}, "has no tensor 'blocks.1.layers.1.bias'"),
        (gone("lm_heads.0.weight"), {}, "has no tensor 'lm_heads.0.weight'"),
        (gone("lm_heads.2.weight"), {}, "has no tensor 'lm_heads.2.weight'"),
        (None, {"num_heads": 4}, "has no tensor 'blocks.3.layers.0.weight'"),
        (None, {"hidden_size": 8}, r"has shape \[16, 16\] instead of \[8, 8\]"),
        (None, {"vocab_size": 41}, r"'lm_heads.0.weight' has shape \[40, 16\] instead of \[41, 16\]"),
        (None, {"num_heads": "many"}, "config.json: 'num_heads' = 'many'"),
        (None, {"logit_scale": 0}, "config.json: 'logit_scale' = 0"),
        (None, {"truncated_vocab_size": 50}, "truncated_vocab_size is above vocab_size"),
        (lambda t: t.update(token_map=MAP), {"truncated_vocab_size": 6}, r"'token_map' has shape \[5\] instead of \[6\]"),
        (lambda t: t.update(token_map=MAP + 1), {"truncated_vocab_size": 5}, "'token_map' does not hold different ids"),
        (lambda t: t.update(token_map=MAP * 0), {"truncated_vocab_size": 5}, "'token_map' does not hold different ids"),
        (lambda t: t.update(token_map=MAP.float()), {"truncated_vocab_size": 5}, "'token_map' does not hold different ids"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(tensors, write, tmp_path, change, keys, said):
    if change is not None:
        change(tensors)
    with pytest.raises(ModelError, match=said) as caught:
        load_medusa(write(tensors, **keys))
    assert str(tmp_path) in str(caught.value)


def make_llm(folder: Path, **keys: Any) -> LLM:
    config = {"method": "medusa", "model": str(folder), "on_proposer_error": "raise", **keys}
    return LLM(zoo(), speculative_config=config, strict_drafts=True)


@pytest.fixture(scope="module")
def learnt(texts, fit, tmp_path_factory) -> Path:
    """Medusa heads of the zoo's target that know its answers, nearly."""
    torch.manual_seed(0)
    config = {
        "model_type": "medusa",
        "hidden_size": 256,
        "vocab_size": 4096,
        "num_heads": 3,
        "num_hidden_layers": 1,
    }
    heads = Medusa(MedusaLayout(**config))
    fit(heads, lambda: heads(texts.states))
    folder = tmp_path_factory.mktemp("medusa")
    (folder / "config.json").write_text(json.dumps(config))
    save_file(heads.state_dict(), folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"tree_top_k": 2, "num_speculative_tokens": 6},
        {"rejection_sample_method": "probabilistic"},
        {"draft_confidence_threshold": 0.5, "draft_sample_method": "greedy"},
    ],
)
@pytest.mark.sampled(0, slow=2)
def test_texts_are_right_and_what_was_learnt_is_drafted(learnt, texts, keys):
    llm = make_llm(learnt, **keys)
    prompts = [{"prompt_token_ids": ids} for ids in texts.prompts]
    outputs = llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True))
    assert [output.outputs[0].token_ids for output in outputs] == [answer[:24] for answer in texts.answers]
    lengths = [output.metrics.mean_acceptance_length for output in outputs[:4]]
    assert min(lengths) > (2.0 if "draft_confidence_threshold" in keys else 3.0)


@pytest.mark.slow
def test_as_many_heads_are_read_as_a_draft_is_deep(learnt):
    for k, width, wanted in ((1, 1, 1), (3, 1, 3), (3, 2, 2)):
        llm = make_llm(learnt, num_speculative_tokens=k, tree_top_k=width)
        assert llm._built.engine.proposer._heads.num_heads == wanted


def test_k_comes_from_the_heads_in_the_file(learnt, tmp_path):
    """Configurations of original checkpoints state two heads where the file holds more."""
    folder = shutil.copytree(learnt, tmp_path / "heads")
    config = json.loads((folder / "config.json").read_text())
    config.pop("num_heads")
    (folder / "config.json").write_text(json.dumps(config | {"medusa_num_heads": 2}))
    for keys, wanted in (
        ({}, 3),
        ({"num_speculative_tokens": 3}, 3),
        ({"num_speculative_tokens": 5, "tree_top_k": 2}, 3),
    ):
        llm = make_llm(folder, **keys)
        assert llm._built.engine.proposer._heads.num_heads == wanted


def test_heads_of_another_target_and_more_tokens_than_heads(learnt, tensors, write, tmp_path):
    write(tensors)
    with pytest.raises(ConfigError, match="hidden states of size 16, those of the target have 256"):
        make_llm(tmp_path)
    with pytest.raises(
        ConfigError, match=r"'num_speculative_tokens' = 6 is more than the 3 heads .* use 3 or less"
    ):
        make_llm(learnt, num_speculative_tokens=6)
