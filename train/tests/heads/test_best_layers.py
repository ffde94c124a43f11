"""Draft models begin with the layers that say a text, and the same text again, best."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
import torch
import torch.nn.functional as F

from specdec_train.heads.best_layers import best_layers
from specdec_train.heads.make import make_draft
from specdec_train.heads.recipe import HEADS


def loss_of(target, documents, kept) -> float:
    """The loss of a draft model made of these layers."""
    draft = make_draft(target, replace(HEADS["draft"], kept_layers=kept), documents).eval()
    tokens = torch.tensor([ids[:64] * 2 for ids in documents])
    with torch.no_grad():
        logits = draft(tokens[:, :-1]).logits
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).item()


@pytest.mark.parametrize("count", [2, 3])
def test_they_are_the_best_of_all(count, target, documents):
    every = [(0, *more) for more in combinations(range(1, 6), count - 1)]
    best = min(every, key=lambda kept: loss_of(target, documents, kept))
    assert best_layers(target, documents, count) == best


def test_further_ones_are_added_one_at_a_time(target, documents):
    three = best_layers(target, documents, 3)
    four = min(
        (tuple(sorted((*three, k))) for k in range(6) if k not in three),
        key=lambda kept: loss_of(target, documents, kept),
    )
    assert best_layers(target, documents, 4) == four


def test_a_draft_has_fewer_layers_than_its_target(target, documents):
    assert best_layers(target, documents, 1) == (0,)
    assert len(best_layers(target, documents, 9)) == 5


def test_the_target_stays_as_it_was(target, documents):
    before = target(torch.tensor(documents[:1])[:, :50]).logits
    best_layers(target, documents, 3)
    assert torch.equal(before, target(torch.tensor(documents[:1])[:, :50]).logits)
    assert target.config.num_hidden_layers == 6


def test_a_draft_model_begins_with_them_unless_told_otherwise(target, documents):
    draft = make_draft(target, HEADS["draft"], documents)
    best = best_layers(target, documents, 3)
    for own, k in zip(draft.model.layers, best, strict=True):
        assert torch.equal(own.mlp.up_proj.weight, target.model.layers[k].mlp.up_proj.weight)


def test_texts_must_be_long_enough(target):
    with pytest.raises(ValueError, match="no training text has 64 tokens: use longer ones"):
        best_layers(target, [[1, 2, 3]], 3)


def test_of_one_layer_none_can_be_left_out(target, documents):
    target.model.layers = target.model.layers[:1]
    target.config.num_hidden_layers = 1
    with pytest.raises(ValueError, match="the target has one layer only"):
        best_layers(target, documents, 3)


@pytest.mark.parametrize("count", [0, -1])
def test_there_is_at_least_one(count):
    with pytest.raises(ValueError, match=f"num_kept_layers={count} must be at least 1"):
        replace(HEADS["draft"], num_kept_layers=count)
