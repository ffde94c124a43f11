"""What is wrong with a head's files is said, with the place and the remedy."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dflash_check.session import make_proposer
from dflash_check.shape import Layout, Shape, random_tensors, write_head

from specdec import ConfigError, ModelError
from specdec.config import parse_speculative_config

FLAT = Shape()
SPECULATORS = Layout(is_speculators=True)
SELECTOR = {"selector_rank": 4, "selector_top_k": 2, "conv_kernel_size": 2, "conv_group_size": 8}


def error_of(folder: Path, shape: Shape = FLAT, layout: Layout | None = None, **keys: Any) -> str:
    path = write_head(folder, shape, random_tensors(shape), layout)
    with pytest.raises((ModelError, ConfigError)) as caught:
        make_proposer(path, **keys)
    return str(caught.value)


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        (Layout(keys={"architectures": ["LiLiCorrDraftModel"]}), "is a LiLiCorr head ('lilicorrdraftmodel')"),
        (Layout(inner_keys={"lilicorr_rank": 4}), "is a LiLiCorr head (lilicorr_rank)"),
        (Layout(keys={"architectures": ["MuseGlimmerAssistantModel"]}), "is a Muse-Glimmer's assistant head"),
        (
            Layout(inner_keys={"projector_type": "mlp"}),
            "projector_type is 'mlp', and this package runs DFlash and",
        ),
        (
            Layout(inner_keys={"attention_mode": "mla"}),
            "attention_mode mla: this package runs the DFlash heads",
        ),
        (Layout(inner_keys={"attention_modes": ["gqa", "kda"]}), "attention_mode kda"),
        (Layout(keys={"model_type": "gemma4_text"}), "layers of model_type 'gemma4_text', with norms around"),
        (Layout(inner_keys={"attention_sink_bias": True}), "attention_sink_bias"),
        (Layout(inner_keys={"attention_value_scale": 0.5}), "attention_value_scale"),
        (Layout(keys={"is_neox_style": False}), "interleaved rotary embedding"),
        (Layout(keys={"quantization_config": {"bits": 4}}), "quantised weights (quantization_config)"),
        (Layout(renamed={"fc.weight": "mask_embedding"}), "a mask_embedding beside the embedding"),
    ],
)
def test_relatives_are_refused_by_name(tmp_path: Path, layout: Layout, told: str) -> None:
    assert told in error_of(tmp_path, layout=layout)


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        (
            Layout(keys={"hidden_size": None}),
            "hidden_size is missing: it is not the configuration of a DFlash",
        ),
        (Layout(keys={"block_size": None}), "block_size is missing"),
        (Layout(keys={"block_size": 0}), "block_size is 0 instead of a number from 1 on"),
        (Layout(keys={"block_size": 1}), "block_size is 1, which leaves no token to guess"),
        (Layout(inner_keys={"mask_token_id": None}), "give mask_token_id in speculative_config"),
        (Layout(inner_keys={"mask_token_id": "<mask>"}), "mask_token_id is '<mask>' instead of a number"),
        (Layout(inner_keys={"mask_token_id": 61}), "the mask token is 61, and the embedding has 61 ids"),
        (Layout(inner_keys={"target_layer_ids": []}), "target_layer_ids is [] instead of a list of layer"),
        (
            Layout(inner_keys={"target_layer_ids": [1, 3, 8]}),
            "the target has 8 layers: it is a head of another",
        ),
        (Layout(keys={"num_target_layers": 36}), "layers [1, 3, 5] of 36, and the target has 8 layers"),
        (
            Layout(keys={"eagle_aux_hidden_state_layer_ids": [1, 3, 5]}),
            "target_layer_ids [1, 3, 5] are the outputs [2, 4, 6], and eagle_aux_hidden_state_layer_ids says [1, 3, 5]",
        ),
        (
            replace(SPECULATORS, keys={"aux_hidden_state_layer_ids": None}),
            "aux_hidden_state_layer_ids is missing: give aux_layer_ids",
        ),
        (Layout(keys={"layer_types": ["full_attention"]}), "layer_types is ['full_attention'], and 2 layers"),
        (Layout(keys={"layer_types": ["full_attention", "linear_attention"]}), "layer_types is"),
        (
            Layout(keys={"layer_types": ["sliding_attention"] * 2}),
            "layers have a window, and nothing gives its",
        ),
        (
            Layout(keys={"layer_types": ["sliding_attention"] * 2, "sliding_window": 9}),
            "sliding_window with use_sliding_window true",
        ),
        (Layout(keys={"head_dim": "wide"}), "transformers has no layers for this configuration"),
        (
            Layout(inner_keys={"projector_type": "domino"}),
            "emb_dim is missing: it is not the configuration of a",
        ),
        (
            Layout(inner_keys={"projector_type": "domino", "emb_dim": 4, "gru_hidden_dim": 0}),
            "is 0 instead of a number from 1 on",
        ),
        (Layout(keys={"markov_rank": 8}), "has no tensor for 'markov_head.markov_w1.weight'"),
        (Layout(keys={"markov_rank": 8, "markov_head_type": "deep"}), "is 'deep' instead of vanilla, gated"),
        (Layout(keys={"architectures": ["DFlash2DraftModel"]}), "selector_rank is missing: it is not the"),
        (Layout(keys=SELECTOR | {"conv_group_size": 5}), "conv_group_size is 5, of a head that is 32 wide"),
        (
            Layout(keys=SELECTOR | {"draft_vocab_size": 60}),
            "draft_vocab_size is 60, and a DFlash2 head drafts all",
        ),
        (
            replace(SPECULATORS, keys={"speculators_model_type": "xpress"}),
            "xpress_rank is missing: it is not",
        ),
    ],
)
def test_configurations(tmp_path: Path, layout: Layout, told: str) -> None:
    assert told in error_of(tmp_path, layout=layout)


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (replace(FLAT, vocab=77, mask_id=5, num_logits=77), "the head knows 77 ids, the target has 61"),
        (replace(FLAT, target_hidden=48), "the head reads states 48 wide, the target's are 32"),
        (
            replace(FLAT, hidden=24, head_dim=6, has_own_lm_head=True),
            "has no embed_tokens.weight, and the target's embedding is 32 wide, the head 24",
        ),
        (
            replace(FLAT, hidden=24, head_dim=6, has_own_embedding=True),
            "has no lm_head.weight, and the target's",
        ),
        (
            replace(FLAT, num_logits=40, has_own_lm_head=True),
            "has no d2t, but 40 logits for the target's 61 ids",
        ),
    ],
)
def test_heads_of_other_targets(tmp_path: Path, shape: Shape, told: str) -> None:
    assert told in error_of(tmp_path, shape)


def test_tensors(tmp_path: Path) -> None:
    def told(tensors: dict[str, torch.Tensor]) -> str:
        path = write_head(tmp_path, FLAT, tensors)
        with pytest.raises(ModelError) as caught:
            make_proposer(path)
        return str(caught.value)

    tensors = random_tensors(FLAT)
    without = {name: value for name, value in tensors.items() if "k_norm" not in name}
    assert "has no tensor for 'layers.0.self_attn.k_norm.weight', 'layers.1.self_attn.k_norm.weight'" in told(
        without
    )
    strange = {"something.weight": torch.ones(3)}
    assert "tensor 'something.weight' has no place in this head" in told(tensors | strange)
    assert "(what it has without a place here: something.weight)" in told(without | strange)
    twice = tensors | {"model.fc.weight": tensors["fc.weight"].clone()}
    assert "tensors 'fc.weight' and 'model.fc.weight' are the same part" in told(twice)
    assert "instead of [32, 96]: config.json does not belong to these weights" in told(
        tensors | {"fc.weight": torch.ones(32, 64)}
    )
    ids = torch.zeros(61, dtype=torch.int64)
    assert "d2t leads to id 99" in told(tensors | {"d2t": ids + 99})
    assert "d2t gives two logits the same id" in told(tensors | {"d2t": -torch.arange(61)})


def test_more_tokens_than_a_block_has(tmp_path: Path) -> None:
    told = error_of(tmp_path, num_speculative_tokens=6)
    assert "'num_speculative_tokens' = 6 is more than the 5 tokens of a block" in told
    assert told.endswith("use 5 or less")
    told = error_of(tmp_path, num_speculative_tokens=11, tree_top_k=2)
    assert told.endswith("(block_size 6), 2 candidates each (tree_top_k): use 10 or less")


def test_a_layout_that_the_file_leaves_open_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    layout = replace(SPECULATORS, keys={"speculators_model_type": "dspark"})
    with caplog.at_level(logging.WARNING, "specdec"):
        proposer = make_proposer(write_head(tmp_path, FLAT, random_tensors(FLAT), layout))
        assert not proposer._settings.predicts_at_anchor
    assert "a DSpark head without sample_from_anchor" in caplog.text
    path = write_head(
        tmp_path, FLAT, random_tensors(FLAT), replace(layout, keys=layout.keys | {"sample_from_anchor": True})
    )
    caplog.clear()
    assert make_proposer(path)._settings.predicts_at_anchor
    assert "sample_from_anchor" not in caplog.text


def test_what_the_file_does_not_say_is_given(tmp_path: Path) -> None:
    layout = Layout(inner_keys={"mask_token_id": None}, keys={"num_target_layers": 36})
    path = write_head(tmp_path, FLAT, random_tensors(FLAT), layout)
    proposer = make_proposer(path, mask_token_id=7, aux_layer_ids=(1, 2, 3))
    assert proposer.aux_layer_ids == (1, 2, 3)
    assert proposer._settings.mask_id == 7


def test_it_is_told_from_other_methods_and_always_parallel(tmp_path: Path) -> None:
    path = write_head(tmp_path / "flat", FLAT, random_tensors(FLAT))
    found = parse_speculative_config({"model": path, "num_speculative_tokens": 3}, target=None)
    assert found is not None
    assert found.proposer_class.name == "dflash"
    assert found.proposer_config.parallel_drafting is True
    path = write_head(tmp_path / "speculators", FLAT, random_tensors(FLAT), SPECULATORS)
    found = parse_speculative_config({"model": path}, target=None)
    assert found is not None
    assert (found.proposer_class.name, found.proposer_config.num_speculative_tokens) == ("dflash", 5)
