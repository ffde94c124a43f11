"""Methods are found by name, by alias and by their checkpoints; k follows the checkpoint."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from specdec import Capability, ConfigError, registry
from specdec.config import parse_speculative_config
from specdec_plugin_mlp import (
    MedusaConfig,
    MedusaProposer,
    MLPSpeculatorConfig,
    MLPSpeculatorProposer,
)


@pytest.mark.parametrize("method", [None, "mlp", "mlp_speculator"])
def test_a_checkpoint_gives_method_and_number_of_tokens(make_heads, method):
    keys = {} if method is None else {"method": method}
    resolved = parse_speculative_config({"model": str(make_heads(n_predict=4)), **keys})
    assert resolved.proposer_class is MLPSpeculatorProposer
    assert resolved.proposer_config.num_speculative_tokens == 4
    assert resolved.proposer_config.draft_sample_method == "coupled"
    assert resolved.config.draft_tensor_parallel_size == 1


def test_a_checkpoint_that_leaves_its_default_out(make_heads):
    folder = make_heads()
    config = json.loads((folder / "config.json").read_text())
    del config["n_predict"]
    (folder / "config.json").write_text(json.dumps(config))
    assert parse_speculative_config({"model": str(folder)}).proposer_config.num_speculative_tokens == 3


@pytest.mark.parametrize("key", ["num_heads", "medusa_num_heads"])
def test_medusa_too(tmp_path, key):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "medusa", key: 5}))
    resolved = parse_speculative_config({"model": str(tmp_path)})
    assert resolved.proposer_class is MedusaProposer
    assert resolved.proposer_config.num_speculative_tokens == 5


def test_entry_points():
    assert registry.proposer("mlp") is registry.proposer("mlp_speculator") is MLPSpeculatorProposer
    assert registry.proposer("medusa") is MedusaProposer


@pytest.mark.parametrize("config", [MLPSpeculatorConfig, MedusaConfig])
def test_bounds(config):
    assert config(model="heads", num_speculative_tokens=2).tree_top_k == 1
    for wrong in (
        {"tree_top_k": 0}, {"tree_top_k": 33}, {"draft_confidence_threshold": 1.1}, {"draft_confidence_threshold": -1},
    ):  # fmt: skip
        with pytest.raises(ValidationError) as caught:
            config(model="heads", num_speculative_tokens=2, **wrong)
        assert [error["loc"] for error in caught.value.errors()] == [(next(iter(wrong)),)]
    with pytest.raises(ValidationError, match="model is missing"):
        config(num_speculative_tokens=2)


def test_a_model_is_asked_for():
    with pytest.raises(ConfigError, match="needs a draft checkpoint"):
        parse_speculative_config({"method": "mlp", "num_speculative_tokens": 2})


@pytest.mark.parametrize(
    ("keys", "given"),
    [
        ({}, set()),
        ({"draft_sample_method": "coupled"}, set()),
        ({"draft_sample_method": "probabilistic"}, {Capability.DRAFT_PROBS}),
        ({"tree_top_k": 2, "draft_confidence_threshold": 0.1}, {Capability.TREE}),
    ],
)
def test_only_hidden_states_are_needed(keys, given):
    class Target:
        max_model_len = 128

    config = MLPSpeculatorConfig(model="heads", **keys)
    base = {Capability.HIDDEN_STATES, Capability.BEFORE_VERDICT}
    assert MLPSpeculatorProposer(config, Target()).capabilities == base | given
