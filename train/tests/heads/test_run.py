"""A run of a head: which steps it simulates when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdec_train.heads.recipe import HEADS
from specdec_train.heads.recurrent import RecurrentObjective
from specdec_train.heads.run import train_head


@pytest.mark.parametrize(("share", "single"), [(0.0, 0), (0.3, 3), (1.0, 10)])
def test_a_share_of_the_run_simulates_one_step(share, single, target, documents, tmp_path, monkeypatch):
    seen = []
    loss = RecurrentObjective.loss

    def spy(self, tokens):
        seen.append(self.num_trained)
        return loss(self, tokens)

    monkeypatch.setattr(RecurrentObjective, "loss", spy)
    recipe = replace(HEADS["mtp"].tiny(), first_share=share, eval_every=100, checkpoint_every=100, seq_len=32)
    train_head(recipe, target, documents[:3], documents[3:], 0, tmp_path)
    assert seen[:10] == [1] * single + [recipe.num_steps] * (10 - single)


def test_a_share_is_a_share():
    with pytest.raises(ValueError, match=r"first_share=2 must be in \[0, 1\]"):
        replace(HEADS["eagle"], first_share=2)
