"""The layers that a head reads, from each exporter's numbers: k is the input of layer k of the target's eight."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from eagle_check.layout import Layout, write_head
from eagle_check.shape import Shape, random_tensors
from eagle_check.targets import make_proposer
from head_check.target import NUM_LAYERS

from specdec_cli.main import run
from specdec_plugin_eagle.aux_layers import KEY, AuxLayers, layers_read

SPECULATORS = {"speculators_model_type": "eagle3", "transformer_layer_config": {}}
TOLD: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "speculators": (SPECULATORS | {KEY: [4, 6, 8]}, (4, 6, 8)),
    "speculators, beginning with 1": (SPECULATORS | {KEY: [1, 3, 6]}, (1, 3, 6)),
    "ModelOpt": ({"eagle_config": {KEY: [1, 3, 4], "use_aux_hidden_state": True}}, (2, 4, 5)),
    "nested with the last layer": ({"eagle_config": {KEY: [4, 6, 8]}}, (4, 6, 8)),
    "top": ({KEY: [3, 5, 6]}, (3, 5, 6)),
    "top beside outputs": ({KEY: [1, 3, 6], "eagle_config": {KEY: [0, 2, 5]}}, (1, 3, 6)),
    "told outputs": ({KEY: [1, 3, 4], "eagle_aux_layer_semantics": "sglang"}, (2, 4, 5)),
    "told inputs": ({"eagle_config": {KEY: [1, 3, 4]}, "eagle_aux_layer_semantics": "vllm"}, (1, 3, 4)),
}
GUESSED: dict[str, tuple[dict[str, Any], tuple[int, ...], str]] = {
    "top, beginning with 1": ({KEY: [1, 3, 4]}, (1, 3, 4), "else [2, 4, 5]"),
    "top and nested the same": (
        {KEY: [1, 3, 4], "eagle_config": {KEY: [1, 3, 4]}},
        (1, 3, 4),
        "else [2, 4, 5]",
    ),
    "nested, beginning with 2": ({"eagle_config": {KEY: [2, 4, 5]}}, (2, 4, 5), "else [3, 5, 6]"),
    "none": ({}, (2, 4, 5), "its config.json names none"),
}


def read(config: dict[str, Any]) -> tuple[int, ...]:
    layers = AuxLayers.from_config(config, "head", is_speculators="transformer_layer_config" in config)
    return layers_read(layers, NUM_LAYERS, "head")


@pytest.mark.parametrize("case", TOLD)
def test_what_the_file_tells(case: str, caplog: pytest.LogCaptureFixture) -> None:
    config, expected = TOLD[case]
    with caplog.at_level(logging.INFO, "specdec"):
        assert read(config) == expected
    [record] = caplog.records
    assert record.levelno == logging.INFO
    assert f"layers {list(expected)} are read" in record.getMessage()


@pytest.mark.parametrize("case", GUESSED)
def test_a_guess_is_a_warning_with_both_readings(case: str, caplog: pytest.LogCaptureFixture) -> None:
    config, expected, said = GUESSED[case]
    assert read(config) == expected
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert said in record.getMessage()


def test_a_key_overrides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shape = Shape()
    path = write_head(tmp_path, shape, random_tensors(shape), Layout(aux_place=None))
    assert make_proposer(path, shape, aux_layer_ids=(1, 3, 6)).aux_layer_ids == (1, 3, 6)
    assert "guess" not in caplog.text


@pytest.mark.parametrize("flag", [{"use_aux_hidden_state": False}, {"use_aux_hidden_state": None}, {}])
def test_an_empty_list_means_none(tmp_path: Path, flag: dict[str, Any]) -> None:
    """As ModelOpt exports a head on the last state alone."""
    shape = Shape(num_aux=0)
    layout = Layout(aux_place=None, keys={"eagle_config": {KEY: [], **flag}})
    path = write_head(tmp_path, shape, random_tensors(shape), layout)
    assert make_proposer(path, shape).aux_layer_ids == ()


def test_converted_ids_count_inputs(tmp_path: Path) -> None:
    shape = Shape()
    write_head(
        tmp_path / "head", shape, random_tensors(shape), Layout(aux_place="eagle_config", aux_ids=(0, 2, 5))
    )
    for source, to in (("head", "speculators"), ("speculators", "published")):
        assert run(["convert", str(tmp_path / source), str(tmp_path / to), "--to", to]) == 0
        config = json.loads((tmp_path / to / "config.json").read_text())
        assert config[KEY] == [1, 3, 6]
        assert read(config) == (1, 3, 6)
