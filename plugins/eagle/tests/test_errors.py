"""What is wrong with a checkpoint or configuration is said in one sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from eagle_check.layout import Layout, write_head
from eagle_check.shape import Shape, random_tensors
from eagle_check.targets import make_proposer
from head_check.target import VOCAB, target_model
from pydantic import ValidationError

from specdec import LLM, ConfigError, ModelError
from specdec_plugin_eagle import Eagle3Config, EagleConfig

ONE = Shape(is_eagle3=False, has_own_lm_head=False)
THREE = Shape(num_logits=40, has_map=True)
Tensors = dict[str, torch.Tensor]


def without(*names: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {n: t for n, t in tensors.items() if n not in names}


def with_more(**more: torch.Tensor) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {n.replace("__", "."): t for n, t in more.items()}


DAMAGED: dict[str, tuple[Shape, Layout, Callable[[Tensors], Tensors] | None, str]] = {
    "missing tensor": (
        ONE,
        Layout(),
        without("layers.0.mlp.up_proj.weight"),
        r"has no tensor for 'layers\.0\.mlp\.up_proj\.weight': its config\.json does not belong to these weights",
    ),
    "every name prefixed": (
        ONE,
        Layout(),
        lambda tensors: {f"net.{name}": tensor for name, tensor in tensors.items()},
        r"has no tensor for 'layers\.0\.self_attn\.q_proj\.weight', .* without a place here: .*net\.fc\.weight",
    ),
    "missing norm": (THREE, Layout(), without("norm.weight"), r"has no tensor for 'norm\.weight'"),
    "missing fc": (THREE, Layout(), without("fc.weight"), r"has no tensor for 'fc\.weight'"),
    "wrong shape": (
        THREE,
        Layout(keys={"intermediate_size": 48}),
        None,
        r"tensor 'midlayer\.mlp\.gate_proj\.weight' has shape \[40, 32\] instead of \[48, 32\]",
    ),
    "wrong width of fc": (
        replace(THREE, num_aux=4),
        Layout(aux_ids=(1, 3, 6)),
        None,
        r"tensor 'fc\.weight' has shape \[32, 128\] instead of \[32, 96\]",
    ),
    "wrong vocabulary": (
        ONE,
        Layout(keys={"vocab_size": 90}),
        None,
        r"the head knows 90 ids, the target has 61: it is a head of another target",
    ),
    "head of another target": (
        replace(THREE, target_hidden=48),
        Layout(),
        None,
        r"the head reads states 48 wide, the target's are 32: it is a head of another target",
    ),
    "narrow EAGLE-1 head": (
        replace(ONE, hidden=24, head_dim=6, has_own_embedding=True, has_own_lm_head=True),
        Layout(keys={"target_hidden_size": 32}),
        None,
        r"the head is 24 wide, the target 32: .*its own state in the place of the target's",
    ),
    "narrow head without embedding": (
        replace(THREE, hidden=24, head_dim=6),
        Layout(),
        None,
        r"has no embed_tokens\.weight, and the target's embedding is 32 wide, the head 24",
    ),
    "reduced vocabulary without projection": (
        replace(THREE, has_own_lm_head=False),
        Layout(),
        None,
        r"has no lm_head\.weight, and the target's projection has another shape",
    ),
    "d2t out of range": (
        THREE,
        Layout(),
        with_more(d2t=torch.full((40,), 30)),
        r"d2t leads to id 61, the target has 61: it is a head of another target",
    ),
    "d2t below 0": (THREE, Layout(), with_more(d2t=torch.full((40,), -1)), r"d2t leads to id -1,"),
    "d2t twice": (
        THREE,
        Layout(),
        with_more(d2t=torch.tensor([1, 0] + [0] * 38)),
        r"d2t gives two logits the same id",
    ),
    "no d2t": (THREE, Layout(), without("d2t"), r"has no d2t, but 40 logits for the target's 61 ids"),
    "short d2t": (
        THREE,
        Layout(),
        with_more(d2t=torch.zeros(39, dtype=torch.int64)),
        r"'d2t' has shape \[39\] instead of \[40\]",
    ),
    "unknown tensor": (
        THREE,
        Layout(),
        with_more(extra__weight=torch.ones(3)),
        r"tensor 'extra\.weight' has no place in this head",
    ),
    "norms that config.json does not name": (
        replace(THREE, has_fc_norms=True),
        Layout(without=("fc_norm",)),
        None,
        r"tensor 'fc_norm\.0\.weight' has no place in this head: config\.json does not say what it is for \(norm_before_fc",
    ),
    "the same part twice": (
        THREE,
        Layout(),
        with_more(model__norm__weight=torch.ones(32)),
        r"tensors 'model\.norm\.weight' and 'norm\.weight' are the same part",
    ),
    "missing key": (
        THREE,
        Layout(without=("hidden_size",)),
        None,
        r"hidden_size is missing: it is not the config",
    ),
    "missing vocabulary": (THREE, Layout(without=("vocab_size",)), None, r"vocab_size is missing"),
    "norms of speculators 0.2": (
        ONE,
        Layout(is_speculators=True, keys={"layernorms": True}),
        None,
        r"layernorms is true, which means a norm after the layer and one of its input",
    ),
    "heads that do not divide": (
        THREE,
        Layout(keys={"num_attention_heads": 5}),
        None,
        r"transformers has no layers for this configuration \(.*32\) is not a multiple of the number of attention heads \(5",
    ),
    "positions in three dimensions": (
        THREE,
        Layout(keys={"rope_scaling": {"type": "mrope", "mrope_section": [2, 2]}}),
        None,
        r"transformers has no layers for this configuration \('?mrope",
    ),
    "unknown layers": (
        THREE,
        Layout(keys={"model_type": "gemma2"}),
        None,
        r"model_type is 'gemma2', and layers of heads",
    ),
    "aux layers": (
        THREE,
        Layout(aux_ids=(1, 3, 9)),
        None,
        r"eagle_aux_hidden_state_layer_ids: \[1, 3, 9\], and the target has ids 0 to 8",
    ),
    "too few aux layers": (
        THREE,
        Layout(aux_ids=(2, 5)),
        None,
        r"instead of \[32, 64\]: .*another number of the target's layers .*\(eagle_aux_hidden_state_layer_ids: \[2, 5\]\)",
    ),
    "too many layers": (
        THREE,
        Layout(keys={"num_hidden_layers": 10**9}),
        None,
        r"num_hidden_layers is 1000000000 instead of",
    ),
    "too wide layers": (
        THREE,
        Layout(keys={"intermediate_size": 10**6}),
        None,
        r"intermediate_size is 1000000, and no tensor is longer than \d+",
    ),
    "text for a flag": (
        THREE,
        Layout(keys={"norm_output": "x"}),
        None,
        r"norm_output is 'x' instead of true or false",
    ),
    "a list for a flag": (
        THREE,
        Layout(keys={"fc_norm": []}),
        None,
        r"fc_norm is \[\] instead of true or false",
    ),
    "text for a factor": (
        THREE,
        Layout(keys={"logit_scale": "2"}),
        None,
        r"logit_scale is '2' instead of a number",
    ),
    "infinity for a factor": (
        THREE,
        Layout(keys={"logit_scale": float("inf")}),
        None,
        r"logit_scale is inf instead of",
    ),
    "a mapping for a size": (
        THREE,
        Layout(keys={"draft_vocab_size": {}}),
        None,
        r"draft_vocab_size is \{\} instead of a number",
    ),
    "truth for a size": (
        THREE,
        Layout(keys={"hidden_size": True}),
        None,
        r"hidden_size is True instead of a number from 1",
    ),
    "a fraction for an id": (
        THREE,
        Layout(keys={"mask_token_id": 1.5}),
        None,
        r"mask_token_id is 1\.5 instead of a number",
    ),
    "aux layers of no kind": (
        THREE,
        Layout(keys={"eagle_aux_hidden_state_layer_ids": "middle"}),
        None,
        r"eagle_aux_hidden_state_layer_ids is 'middle' instead of a list of layer numbers",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_head_that_does_not_fit(tmp_path: Path, case: str) -> None:
    shape, layout, change, message = DAMAGED[case]
    tensors = random_tensors(shape)
    path = write_head(tmp_path, shape, change(tensors) if change else tensors, layout)
    with pytest.raises((ModelError, ConfigError), match=message) as caught:
        make_proposer(path, shape)
    check_sentence(str(caught.value), tmp_path)


def check_sentence(text: str, folder: Path) -> None:
    assert str(folder) in text
    assert "\n" not in text
    assert not re.search(r"Traceback|Error\(", text)


def test_damaged_files(tmp_path: Path) -> None:
    path = write_head(tmp_path, THREE, random_tensors(THREE))
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        ModelError, match=r"model\.safetensors is cut short or no safetensors file.*fetch it again"
    ):
        make_proposer(path, THREE)
    file.unlink()
    torch.save({"fc.weight": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is a pickle, and only safetensors are read"):
        make_proposer(path, THREE)
    file.write_bytes(whole)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ModelError, match=r"has no config\.json"):
        make_proposer(path, THREE)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ModelError, match="holds no mapping"):
        make_proposer(path, THREE)


@pytest.mark.parametrize(
    ("shape", "layout", "message"),
    [
        (
            THREE,
            Layout(),
            r"parallel_drafting needs mask_hidden in its weights: if the head was not trained for it",
        ),
        (
            replace(THREE, mask_id=60),
            Layout(without=("ptd_token_id",)),
            r"parallel_drafting needs mask_token_id, pard_token or ptd_token_id",
        ),
        (replace(THREE, mask_id=VOCAB), Layout(), r"the mask token is 61, and the embedding has 61 ids"),
    ],
)
def test_parallel_drafting_needs_a_head_for_it(
    tmp_path: Path, shape: Shape, layout: Layout, message: str
) -> None:
    path = write_head(tmp_path, shape, random_tensors(shape), layout)
    with pytest.raises(ModelError, match=message):
        make_proposer(path, shape, parallel_drafting=True)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model": None}, "model is missing"),
        ({"tree_choices": []}, "tree_choices is empty"),
        ({"tree_choices": [[1]]}, r"the path \[1\] needs the path \[0\]"),
        ({"tree_choices": [[0, 0]]}, r"the path \[0, 0\] needs the path \[0\]"),
        (
            {"tree_choices": [[0], [1], [2], [3], [4]]},
            "tree_choices has 5 nodes, num_speculative_tokens is 4",
        ),
        ({"tree_choices": [[0]], "tree_top_k": 2}, "tree_choices and tree_top_k say different things"),
        ({"tree_choices": [[0], [0, 0]], "tree_depth": 1}, "deeper paths than tree_depth"),
        ({"tree_depth": 3}, "tree_depth is for trees"),
        ({"parallel_drafting": True, "tree_top_k": 2}, "parallel_drafting drafts chains"),
    ],
)
def test_keys_that_make_no_sense_together(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Eagle3Config(**{"model": "head", "num_speculative_tokens": 4} | keys)


def test_parallel_drafting_is_for_eagle3(tmp_path: Path) -> None:
    path = write_head(tmp_path, ONE, random_tensors(ONE))
    config = {"method": "eagle", "model": path, "num_speculative_tokens": 3, "parallel_drafting": True}
    with pytest.raises(ConfigError, match="parallel_drafting"):
        LLM(target_model(), speculative_config=config, skip_tokenizer_init=True)
    assert EagleConfig(model=path, num_speculative_tokens=3).parallel_drafting is False


def test_the_engine_passes_the_sentence_on(tmp_path: Path) -> None:
    path = write_head(tmp_path, ONE, without("fc.weight")(random_tensors(ONE)))
    json.loads((tmp_path / "config.json").read_text())
    config = {"method": "eagle", "model": path, "num_speculative_tokens": 3}
    with pytest.raises(ModelError, match=r"has no tensor for 'fc\.weight'"):
        LLM(target_model(), speculative_config=config, skip_tokenizer_init=True)
