"""DFlash heads learn what they will draft from: the same blocks, behind some places of the text."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dflash_check.reference import Reference
from dflash_check.shape import Shape

from specdec_plugin_dflash import DFlashSettings, View
from specdec_plugin_dflash.names import published_name
from specdec_train.heads.block import BlockObjective
from specdec_train.heads.made import make
from specdec_train.heads.make_dflash import make_dflash
from specdec_train.heads.recipe import HEADS
from specdec_train.heads.states import StateReader
from specdec_train.target_probs import divergence, target_probs_of

RECIPE = replace(HEADS["dflash"], num_steps=3)
VIEWS = {
    "whole": (View(), View()),
    "windows": (View(5, is_causal=True), View()),
    "from the anchor": (View(5, is_from_anchor=True), View(4, is_causal=True, is_from_anchor=True)),
}


def objective_of(target, documents, recipe=RECIPE, **changes) -> BlockObjective:
    head, _ = make_dflash(target, recipe, documents)
    with torch.no_grad():
        for parameter in head.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    head.settings = replace(head.settings, **changes)
    reader = StateReader(target, head.settings.aux_layers)
    return BlockObjective(head.eval(), reader, decay=0.8)


def reference_of(objective: BlockObjective, target) -> Reference:
    head, settings = objective._head, objective._head.settings
    shape = Shape(
        vocab=97, num_logits=settings.num_logits, epsilon=settings.layer_config.rms_norm_eps, aux=settings.aux_layers,
        block_size=settings.block_size, mask_id=settings.mask_id, windows=tuple(view.window for view in settings.views),
        causal=tuple(view.is_causal for view in settings.views), is_from_anchor=settings.views[0].is_from_anchor,
        predicts_at_anchor=settings.predicts_at_anchor,
    )  # fmt: skip
    tensors = {published_name(name): value.detach() for name, value in head.named_parameters()}
    return Reference(shape, tensors, target.model.embed_tokens.weight, target.lm_head.weight)


@pytest.mark.parametrize("draft_vocab_size", [0, 40])
@pytest.mark.parametrize("is_at_anchor", [False, True])
@pytest.mark.parametrize("views", VIEWS)
@torch.no_grad()
def test_guesses_are_those_of_blocks_behind_places_of_the_text(
    views, is_at_anchor, draft_vocab_size, target, documents
):
    recipe = replace(RECIPE, draft_vocab_size=draft_vocab_size)
    changes = {"views": VIEWS[views], "predicts_at_anchor": is_at_anchor}
    changes |= {"block_size": 3} if is_at_anchor else {}
    objective = objective_of(target, documents, recipe, **changes)
    tokens = torch.tensor([documents[0][:21], documents[1][:21]])
    states, reference = objective.reader.read(tokens[:, :-1]), reference_of(objective, target)
    rows, guesses = 18, list(objective.guesses(tokens, is_whole=True))
    assert [len(guess.rows) for guess in guesses] == [2 * -(-rows // (3 if is_at_anchor else 4))] * 3
    logits = states.logits.flatten(0, 1)
    for number, (place, *_) in enumerate(zip(*(guess.rows.tolist() for guess in guesses), strict=True)):
        window, anchor = divmod(place, 20)
        before = [state[window] for state in states.aux]
        expected = reference.guesses(tokens[window, : anchor + 1].tolist(), before, 3)
        for step, guess in enumerate(guesses):
            assert guess.places[number] == number
            torch.testing.assert_close(guess.logits[number].double(), expected[step], rtol=1e-3, atol=1e-4)
            assert torch.equal(guess.wanted[number], logits[place + step])


@torch.no_grad()
def test_the_loss_is_the_weighted_mean_over_tokens_of_blocks(target, documents):
    objective = objective_of(target, documents)
    tokens = torch.tensor(documents[2][:60])[None]
    guesses = list(objective.guesses(tokens, is_whole=True))
    parts = [
        divergence(g.logits, target_probs_of(g.wanted), torch.arange(len(g.rows))).item() for g in guesses
    ]
    expected = sum(0.8**step * part for step, part in enumerate(parts)) / sum(0.8**step for step in range(3))
    assert objective.loss(tokens).item() == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
def test_anchors_and_guesses_are_inside_answers(target, documents):
    objective = objective_of(target, documents)
    tokens = torch.tensor([documents[0][:60], documents[1][:60]])
    is_answer = torch.zeros_like(tokens, dtype=torch.bool)
    is_answer[0, 20:33] = is_answer[1, 50:58] = True
    wanted = (is_answer[:, :-1] & is_answer[:, 1:]).flatten().nonzero()[:, 0]
    counts = []
    for step, guess in enumerate(objective.guesses(tokens, is_answer, is_whole=True)):
        places = wanted[guess.rows]
        assert len(places) == len(set(places.tolist()))
        assert is_answer.flatten()[places // 59 * 60 + places % 59 - step].all()
        counts.append(len(places))
    assert 0 < counts[2] < counts[1] < counts[0] <= 12 + 7
    assert next(iter(objective.guesses(tokens, torch.zeros_like(is_answer)))).logits.shape[0] == 0


@torch.no_grad()
def test_a_window_has_other_anchors_later_in_a_run(target, documents):
    objective = objective_of(target, documents)
    tokens = torch.tensor(documents[0][:200])[None]

    def anchors(**how) -> list[int]:
        return next(iter(objective.guesses(tokens, **how))).rows.tolist()

    first, whole = anchors(), anchors(is_whole=True)
    assert first == anchors() == sorted(first)
    objective.done = 0.5
    assert anchors() != first
    assert anchors(is_whole=True) == whole


def test_a_head_begins_with_the_targets_parts(target, documents):
    made = make(replace(RECIPE, draft_vocab_size=40, num_layers=3), target, documents)
    head = made.module
    settings: DFlashSettings = head.settings
    assert settings.block_size == 4
    assert settings.aux_layers == (2, 3, 3, 4)  # the outputs of 1 to 3, spread over four states
    seen = torch.bincount(torch.tensor([token for ids in documents for token in ids]), minlength=97)
    assert seen[settings.mask_id] == 0
    assert settings.mask_id == 96
    assert made.target_ids is not None
    assert torch.equal(head.model.lm_head.weight, target.lm_head.weight[made.target_ids])
    frozen = {name for name, value in head.named_parameters() if not value.requires_grad}
    assert frozen == {"model.model.embed_tokens.weight"}
