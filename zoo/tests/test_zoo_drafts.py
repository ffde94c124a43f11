"""The drafts as shipped: they load, fit the target, and guess what the manifest says they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from zoo_recipe.draft_recipe import DRAFTS

import specdec_zoo
from specdec_train.distillation import acceptance


def load(name: str) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(specdec_zoo.path(name), dtype=torch.float32)
    return model


@pytest.fixture(scope="module")
def target() -> PreTrainedModel:
    return load("target")


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    """Held-out prompts as windows."""
    tokenizer = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))
    ids = [token for prompt in specdec_zoo.prompts(48) for token in tokenizer(prompt["prompt"])["input_ids"]]
    return torch.tensor(ids[: len(ids) // 257 * 257]).view(-1, 257)


def facts(name: str) -> dict[str, Any]:
    found: dict[str, Any] = specdec_zoo.manifest()["artefacts"][name]
    return found


@pytest.mark.parametrize("name", DRAFTS)
def test_every_draft_is_there_and_small(name: str) -> None:
    assert name in specdec_zoo.names()
    assert facts(name)["num_parameters"] == load(name).num_parameters() < 3_500_000


@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.slow
def test_guesses_stand_as_often_as_recorded(name: str, target: PreTrainedModel, tokens: torch.Tensor) -> None:
    [measured] = acceptance(load(name), target, tokens, 4)  # type: ignore[arg-type]  # Llamas, as all of the zoo
    [recorded] = facts(name)["heldout"]["acceptance"]
    # The record is of all held-out files, this of the prompts cut from them, another mixture of text.
    assert measured["sampled"] == pytest.approx(recorded["sampled"], abs=0.08)
    assert measured["sampled"] > 0.4


def test_a_draft_has_the_targets_tokenizer() -> None:
    ours = AutoTokenizer.from_pretrained(specdec_zoo.path("target")).get_vocab()
    for name in DRAFTS:
        theirs = AutoTokenizer.from_pretrained(specdec_zoo.path(name)).get_vocab()
        assert theirs == ours


def test_the_readme_states_the_recorded_numbers() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    for name in DRAFTS:
        heldout = facts(name)["heldout"]
        assert f"{facts(name)['num_parameters']:,}" in readme
        assert f"{heldout['bits_per_byte']:.2f}" in readme
        assert " / ".join(f"{place['sampled']:.2f}" for place in heldout["acceptance"]) in readme
        assert facts(name)["command"] in readme
