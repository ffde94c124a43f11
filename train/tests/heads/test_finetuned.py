"""`--finetune`: a published head goes on learning, and is published again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.utils import parametrize

from specdec import ConfigError, ModelError
from specdec_plugin_eagle.conversion import plan_conversion
from specdec_train.heads.closed_form import whiten_inputs
from specdec_train.heads.factored import merge
from specdec_train.heads.made import make, to_bfloat16
from specdec_train.heads.make import read_layers
from specdec_train.heads.recipe import HEADS

KINDS = {
    "eagle": HEADS["eagle"],
    "eagle3": replace(HEADS["eagle3"], draft_vocab_size=40, aux_shares=(0.2, 0.4, 0.9)),
}


def guesses_of(made, tokens):
    with torch.no_grad():
        return [guess.logits for guess in made.objective.guesses(tokens)]


@pytest.fixture(params=KINDS)
def trained(request, target, documents, tmp_path):
    """A head whose weights are nothing like those it begins with, and the folder it is published in."""
    made = make(KINDS[request.param], target, documents)
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in made.module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
                parameter.copy_(parameter.bfloat16())
    made.module.eval()
    made.write(tmp_path / "published")
    return KINDS[request.param], made, tmp_path / "published"


def train_again(recipe, target, documents, folder):
    made = make(replace(recipe, finetuned_from=str(folder)), target, documents[:1])
    made.module.eval()
    return made


def publish(made, folder):
    merge(made.module)
    made.write(folder)


def test_it_begins_as_the_head_that_was_published(trained, target, documents, tmp_path):
    recipe, before, folder = trained
    again = train_again(recipe, target, documents, folder)
    tokens = torch.tensor([documents[0][:60], documents[1][:60]])
    expected = guesses_of(before, tokens)
    torch.testing.assert_close(guesses_of(again, tokens), expected)

    if recipe.method == "eagle3":
        assert torch.equal(again.target_ids, before.target_ids)  # of the vocabulary it has, not of this text
        asked = replace(recipe, finetuned_from=str(folder), aux_shares=())
        assert read_layers(target, asked) == read_layers(target, recipe)
        assert parametrize.is_parametrized(again.module.fc)
        whiten_inputs(again.module, again.objective.reader, lambda step: tokens, 0.0)
        torch.testing.assert_close(guesses_of(again, tokens), expected, rtol=1e-3, atol=1e-3)
    merge(again.module)
    to_bfloat16(again.module)
    again.write(tmp_path / "again")
    old, new = (load_file(place / "model.safetensors") for place in (folder, tmp_path / "again"))
    assert old.keys() == new.keys()
    for name, tensor in old.items():
        if name == "fc.weight":  # went through its whitening
            torch.testing.assert_close(new[name].float(), tensor.float(), rtol=0.02, atol=1e-3)
        else:
            assert torch.equal(new[name].to(tensor.dtype), tensor)


def test_it_learns(trained, target, documents):
    recipe, _, folder = trained
    made = train_again(recipe, target, documents, folder)
    tokens = torch.tensor([documents[0][:60], documents[1][:60]])
    learnt = [parameter for parameter in made.module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learnt, 0.002)
    losses = []
    for _ in range(12):
        loss = made.objective.loss(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert not any(parameter.requires_grad for parameter in target.parameters())


def test_what_the_head_has_of_its_own_is_published_again(trained, target, documents, tmp_path):
    recipe, _, folder = trained
    own = ["embed_tokens.weight"] + ["lm_head.weight"] * (recipe.method == "eagle")
    tensors = load_file(folder / "model.safetensors")
    tensors |= {name: torch.randn(97, 32) for name in own}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    made = train_again(recipe, target, documents, folder)
    publish(made, tmp_path / "again")
    new = load_file(tmp_path / "again" / "model.safetensors")
    assert all(torch.equal(new[name], tensors[name]) for name in own)


def test_the_speculators_format_is_read_and_the_published_one_written(trained, target, documents, tmp_path):
    recipe, before, folder = trained
    plan_conversion(str(folder), "speculators", verifier="x").write(tmp_path / "speculators")
    made = train_again(recipe, target, documents, tmp_path / "speculators")
    publish(made, tmp_path / "again")
    again = train_again(recipe, target, documents, tmp_path / "again")
    tokens = torch.tensor([documents[2][:50]])
    torch.testing.assert_close(guesses_of(again, tokens), guesses_of(before, tokens))


def test_layers_that_the_target_does_not_have_are_named(trained, target, documents):
    recipe, _, folder = trained
    if recipe.method == "eagle":
        assert read_layers(target, replace(recipe, finetuned_from=str(folder))) == ()
        return
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config["eagle_aux_hidden_state_layer_ids"] = config["eagle_config"][
        "eagle_aux_hidden_state_layer_ids"
    ] = [1, 2, 9]
    file.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"9\], and the target has ids 0 to 6"):
        read_layers(target, replace(recipe, finetuned_from=str(folder)))


def test_a_head_of_another_target_is_refused(trained, target, documents):
    recipe, _, folder = trained
    target.resize_token_embeddings(120)
    with pytest.raises(ModelError, match="the head knows 97 ids, the target has 120"):
        train_again(recipe, target, documents, folder)
