"""A run of a head: which steps it simulates when."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specdec_train.heads import run
from specdec_train.heads.data import text_data
from specdec_train.heads.make import make_eagle
from specdec_train.heads.recipe import HEADS
from specdec_train.heads.recurrent import RecurrentObjective
from specdec_train.heads.run import train_head
from specdec_train.target_probs import divergence, rejection


@pytest.mark.parametrize(("share", "single"), [(0.0, 0), (0.3, 3), (1.0, 10)])
def test_a_share_of_the_run_simulates_one_step(share, single, target, documents, tmp_path, monkeypatch):
    seen = []
    loss = RecurrentObjective.loss

    def spy(self, tokens, is_answer=None):
        seen.append(self.num_trained)
        return loss(self, tokens, is_answer)

    monkeypatch.setattr(RecurrentObjective, "loss", spy)
    recipe = replace(HEADS["mtp"].tiny(), first_share=share, eval_every=100, checkpoint_every=100, seq_len=32)
    train_head(recipe, target, text_data(recipe, documents[:3], documents[3:], 0), tmp_path)
    assert seen[:10] == [1] * single + [recipe.num_steps] * (10 - single)


@pytest.mark.parametrize("method", ["mlp", "mtp", "draft"])
@pytest.mark.parametrize(("share", "last"), [(0.0, 0), (0.4, 4), (1.0, 10)])
@pytest.mark.sampled(3, slow=3)
def test_a_share_of_the_run_is_for_acceptance(method, share, last, target, documents, tmp_path, monkeypatch):
    measures = []
    for measure in (divergence, rejection):

        def spy(logits, laws, rows, measure=measure):
            if logits.requires_grad:
                measures.append(measure)
            return measure(logits, laws, rows)

        monkeypatch.setattr(run, measure.__name__, spy)
    recipe = replace(HEADS[method].tiny(), first_share=0.0, last_share=share, eval_every=3, seq_len=32)
    recipe = replace(recipe, eval_windows=1000)
    trained = train_head(recipe, target, text_data(recipe, documents[:3], documents[3:], 0), tmp_path)
    a_step = len(measures) // 10
    assert measures == [divergence] * a_step * (10 - last) + [rejection] * a_step * last
    # Divergences both: the one before and the one after the weights are rounded.
    assert trained.heldout_loss == pytest.approx(trained.state.log[-1].heldout_loss, rel=0.05)


@pytest.mark.parametrize("name", ["first_share", "last_share"])
def test_a_share_is_a_share(name):
    with pytest.raises(ValueError, match=name + r"=2 must be in \[0, 1\]"):
        replace(HEADS["eagle"], **{name: 2})


def test_an_eagle_head_begins_with_the_state_and_a_turned_embedding_half_as_large(target):
    with torch.no_grad():
        target.model.norm.weight.fill_(3.0)
    embedding = target.model.embed_tokens.weight
    weight = make_eagle(target).fc.weight.detach()
    size = embedding.shape[1]
    assert torch.equal(weight[:, size:], torch.eye(size))
    assert float((embedding @ weight[:, :size].T).square().mean().sqrt()) == pytest.approx(1.5, rel=1e-4)
    gram = weight[:, :size] @ weight[:, :size].T
    torch.testing.assert_close(gram, torch.eye(size) * gram[0, 0], rtol=1e-4, atol=1e-4)
