"""With a mask the loss is that of answers alone, and other conversations of a batch change nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specdec_train.answers.conversations import padded
from specdec_train.answers.record import Answered
from specdec_train.distillation import overlap
from specdec_train.heads.acceptance import Acceptance
from specdec_train.heads.closed_form import fit
from specdec_train.heads.data import split_batch
from specdec_train.heads.made import make
from specdec_train.heads.recipe import BLOCK_METHODS, HEADS
from specdec_train.heads.recurrent import RecurrentObjective
from specdec_train.heads.states import StateReader
from specdec_train.target_probs import divergence, target_probs_of

KINDS = {
    name: replace(recipe, num_steps=3, first_share=0.0, draft_vocab_size=40 if name == "eagle3" else 0)
    for name, recipe in HEADS.items()
    if name not in BLOCK_METHODS  # which learns at some of the places: `test_block.py`
}


def batch_of(documents, *numbers):
    answered = [Answered(documents[n][: 30 + 7 * n], 9 + n) for n in numbers]
    return padded(answered, 100, 3, 0)


@pytest.mark.parametrize("name", KINDS)
def test_the_loss_is_the_mean_over_places_inside_answers(name, target, documents):
    made = make(KINDS[name], target, documents)
    with torch.no_grad():
        for parameter in made.module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))
        made.module.eval()
        tokens, is_answer = split_batch(batch_of(documents, 0, 1, 2))
        loss = made.objective.loss(tokens, is_answer)
        whole = list(made.objective.guesses(tokens, is_whole=True))
        masked = list(made.objective.guesses(tokens, is_answer, is_whole=True))
    wanted, weights, total = is_answer[:, :-1] & is_answer[:, 1:], 0.0, 0.0
    decay = KINDS[name].step_decay if isinstance(made.objective, RecurrentObjective) else 1.0
    first = 0 if name == "draft" else 1
    for step, (all_of, some) in enumerate(zip(whole, masked, strict=True)):
        rows = len(all_of.rows) // len(tokens)
        keep = (wanted[:, first : first + rows] & wanted[:, first + step : first + step + rows]).flatten()
        torch.testing.assert_close(some.logits, all_of.logits[keep], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(some.wanted, all_of.wanted[keep], rtol=1e-3, atol=1e-4)
        among = some.wanted if made.target_ids is None else some.wanted[:, made.target_ids]
        total += (
            decay**step * divergence(some.logits, target_probs_of(among), torch.arange(len(among))).item()
        )
        weights += decay**step
    if name != "eagle":  # whose loss has the distance of states in it
        assert loss.item() == pytest.approx(total / weights, rel=1e-3)


@pytest.mark.parametrize("name", KINDS)
def test_a_conversation_is_guessed_alike_alone_and_beside_others(name, target, documents):
    made = make(KINDS[name], target, documents)
    made.module.eval()
    with torch.no_grad():
        alone = next(made.objective.guesses(*split_batch(batch_of(documents, 1))))
        beside = next(made.objective.guesses(*split_batch(batch_of(documents, 0, 1, 3))))
    before = int(batch_of(documents, 0)[:, 1].sum()) - 1
    found = beside.logits[before : before + len(alone.logits)]
    torch.testing.assert_close(found, alone.logits, rtol=1e-3, atol=1e-4)


def test_chosen_places_and_ids_are_those_of_all(target):
    tokens = torch.randint(1, 90, (2, 11))
    whole = StateReader(target, (2, 4)).read(tokens)
    places, ids = torch.tensor([3, 12, 21]), torch.tensor([5, 7, 80])
    some = StateReader(target, (2, 4)).read(tokens, places, ids)
    torch.testing.assert_close(some.logits, whole.logits.flatten(0, 1)[places][:, ids])
    assert torch.equal(some.hidden, whole.hidden)
    assert "forward" not in target.lm_head.__dict__


def test_chains_stand_only_where_all_before_stood(target, documents):
    made = make(KINDS["eagle3"], target, documents)
    made.module.eval()
    accepted = Acceptance(made.target_ids)
    stood = None
    with torch.no_grad():
        for step, guess in enumerate(
            made.objective.guesses(*split_batch(batch_of(documents, 0, 2)), is_whole=True)
        ):
            accepted.add(step, guess)
            shares = overlap(guess.logits, guess.wanted, made.target_ids)[0]
            now = dict(zip(guess.places.tolist(), shares.tolist(), strict=True))
            stood = {place: value * (stood or {}).get(place, 1.0) for place, value in now.items()}
            summary = accepted.summary()[step]
            assert summary["sampled"] == pytest.approx(shares.mean().item(), abs=1e-4)
            assert summary["sampled_chain"] == pytest.approx(sum(stood.values()) / len(stood), abs=1e-4)


def test_a_fitted_head_guesses_better_than_one_that_is_not(target, documents):
    recipe = replace(KINDS["eagle3"], draft_vocab_size=0, is_fitted=True)
    batch = padded([Answered(ids, 5) for ids in documents], 110, 3, 0)
    losses = []
    for is_fitted in (False, True):
        torch.manual_seed(2)
        made = make(recipe, target, documents)
        if is_fitted:
            assert fit(made.module, made.objective.reader, lambda step: batch, 1.0)
        made.module.eval()
        with torch.no_grad():
            made.objective.num_trained = 1
            losses.append(made.objective.loss(*split_batch(batch)).item())
    assert losses[1] < 0.6 * losses[0]
