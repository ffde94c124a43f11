"""Draft models: the losses against the definitions, and the tiny recipes end to end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import log_softmax
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
from zoo_recipe.__main__ import build_draft, build_zoo, main
from zoo_recipe.draft_recipe import DRAFTS
from zoo_recipe.draft_run import train_draft
from zoo_recipe.recipe import ModelShape, Recipe
from zoo_recipe.target import build_target, target_config

from specdec_train.distillation import acceptance, distillation_loss

pytestmark = pytest.mark.slow

SHAPE = ModelShape(hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1, intermediate_size=24)
ROUNDING = 5e-7
"""What float32 leaves of the difference of two numbers of a few nats, cross-entropy and entropy."""


@pytest.fixture(scope="module")
def models() -> tuple[LlamaForCausalLM, LlamaForCausalLM]:
    """A target and a draft, both random."""
    config = target_config(SHAPE, vocab_size=40, end_of_text=0)
    return build_target(config, 1).eval(), build_target(config, 2).eval()


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    return torch.randint(4, 40, (3, 12), generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def tiny_zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All models of the tiny recipes; returns the folder."""
    folder = tmp_path_factory.mktemp("tiny-drafts")
    build_zoo(folder / "out", folder / "work", Recipe.tiny(), command="test")
    for name, recipe in DRAFTS.items():
        build_draft(folder / "out", folder / name, name, recipe.tiny(), Recipe.tiny(), command="test")
    return folder / "out"


def test_distillation_is_the_divergence_from_the_target(models, tokens) -> None:
    target, draft = models
    with torch.no_grad():
        p, q = (log_softmax(m(tokens[:, :-1]).logits, -1) for m in (target, draft))
        expected = (p.exp() * (p - q)).sum(-1).mean()
        assert distillation_loss(draft, target, tokens).item() == pytest.approx(expected.item(), abs=ROUNDING)
        assert distillation_loss(target, target, tokens).item() == pytest.approx(0.0, abs=ROUNDING)


def test_acceptance_is_one_for_the_target_itself_and_lower_for_others(models, tokens) -> None:
    target, draft = models
    assert acceptance(target, target, tokens, 2) == [{"sampled": 1.0, "greedy": 1.0}]
    [rates] = acceptance(draft, target, tokens, 2)
    with torch.no_grad():
        p, q = (m(tokens[:, :-1]).logits.softmax(-1) for m in (target, draft))
    assert rates["sampled"] == pytest.approx(torch.minimum(p, q).sum(-1).mean().item(), abs=1e-4)


@pytest.mark.parametrize("name", DRAFTS)
def test_drafts_load_with_plain_transformers_and_say_where_they_come_from(tiny_zoo, name) -> None:
    folder = tiny_zoo / "artefacts" / name
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    facts = json.loads((tiny_zoo / "manifest.json").read_text())["artefacts"][name]
    assert facts["num_parameters"] == model.num_parameters()
    assert facts["training"]["steps"] == DRAFTS[name].tiny().max_steps
    assert name in json.loads((tiny_zoo / "training_log.json").read_text())
    target = AutoTokenizer.from_pretrained(tiny_zoo / "artefacts" / "target")
    assert tokenizer.get_vocab() == target.get_vocab()
    assert len(facts["heldout"]["acceptance"]) == 1


def test_a_draft_of_some_layers_starts_as_those_layers(tiny_zoo, tmp_path) -> None:
    recipe = replace(DRAFTS["draft"].tiny(), kept_layers=(1,), max_steps=1, muon_lr=0.0, adamw_lr=0.0)
    trained = train_draft(recipe, Recipe.tiny(), tiny_zoo / "artefacts", tmp_path)
    target = AutoModelForCausalLM.from_pretrained(tiny_zoo / "artefacts" / "target", dtype=torch.float32)
    assert len(trained.model.model.layers) == 1
    for name, value in trained.model.model.layers[0].state_dict().items():
        assert torch.equal(value, target.model.layers[1].state_dict()[name]), name
    assert torch.equal(trained.model.model.embed_tokens.weight, target.model.embed_tokens.weight)


def test_a_draft_without_its_target_says_what_to_train_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["--tiny", "--artefact", "draft", "--out", str(tmp_path), "--work", str(tmp_path / "work")])
    assert code == 2
    assert "target holds no model: train it first" in capsys.readouterr().err
