"""Replayed states are the target's, and a batch is a function of its step."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specdec_train.heads import run
from specdec_train.heads.data import text_data
from specdec_train.heads.recipe import HEADS
from specdec_train.heads.replay import Replay
from specdec_train.heads.run import train_head
from specdec_train.heads.states import StateReader
from specdec_train.packing import PackedDocuments
from specdec_train.precision import autocast, matmul_dtype

WINDOW = 25


def make_replay(target, documents, *, num_windows=4, reuse=2):
    data = PackedDocuments(documents, separator=0, window=WINDOW, seed=7)
    replay = Replay(
        StateReader(target),
        data,
        batch_size=2,
        length=6,
        margin=3,
        reuse=reuse,
        num_windows=num_windows,
        seed=7,
    )
    return data, replay


@pytest.mark.parametrize("step", [0, 3, 40])
def test_stretches_are_of_the_windows_last_read(step, target, documents):
    data, replay = make_replay(target, documents)
    for earlier in range(step):
        replay.places(earlier)
    places = replay.places(step)
    assert places.shape == (2, 4, 2)
    found = replay.at(places)
    assert found.hidden.shape == (8, 9, 32)
    assert found.tokens.shape == (8, 10)
    newest = 4 + step
    recent = [data.batch(number, 1) for number in range(newest - 4, newest)]
    with autocast():
        states = [StateReader(target).read(tokens[:, :-1]).hidden[0] for tokens in recent]
    for hidden, tokens in zip(found.hidden, found.tokens, strict=True):
        assert any(
            torch.equal(tokens, window[0, at : at + 10])
            and torch.equal(hidden, state[at : at + 9].to(matmul_dtype()))
            for window, state in zip(recent, states, strict=True)
            for at in range(WINDOW - 9)
        )


def test_a_run_that_begins_later_draws_what_it_would_have_drawn(target, documents):
    _, through = make_replay(target, documents)
    for step in range(12):
        places = through.places(step)
    _, resumed = make_replay(target, documents)
    again = resumed.places(11)
    assert torch.equal(places, again)
    for ours, theirs in zip(through.at(places), resumed.at(again), strict=True):
        assert torch.equal(ours, theirs)


def test_a_place_is_drawn_as_often_as_asked(target, documents):
    drawn, read = 0, 0
    _, replay = make_replay(target, documents, num_windows=8, reuse=3)
    for step in range(60):
        drawn += replay.places(step)[..., 0].numel() * 6
        read = replay._num_read * (WINDOW - 1)
    assert drawn / read == pytest.approx(3, rel=0.25)


@pytest.mark.parametrize("reuse", [1, 2, 5])
def test_the_target_runs_less_often_than_there_are_steps(reuse, target, documents, tmp_path, monkeypatch):
    reads = []
    read = StateReader.read

    def spy(self, tokens):
        reads.append(len(tokens))
        return read(self, tokens)

    monkeypatch.setattr(StateReader, "read", spy)
    monkeypatch.setattr(run, "_evaluate", lambda *_: (0.0, [{"sampled": 0.0}]))
    recipe = replace(HEADS["mlp"].tiny(), reuse=reuse, batch_size=1, micro_batch=1, max_steps=20)
    train_head(recipe, target, text_data(recipe, documents[:3], documents[3:], 0), tmp_path)
    assert reads == [1] * (2 * reuse + 19 // reuse)  # the first stock, then one window for `reuse` steps


@pytest.mark.parametrize(("seq_len", "num_steps"), [(8, 7), (16, 12), (64, 33)])
def test_many_heads_on_short_windows_are_trained(seq_len, num_steps, target, documents, tmp_path):
    recipe = replace(HEADS["mlp"].tiny(), seq_len=seq_len, num_steps=num_steps, max_steps=2)
    trained = train_head(recipe, target, text_data(recipe, documents[:3], documents[3:], 0), tmp_path)
    assert len(trained.acceptance) == num_steps


def test_only_heads_of_single_states_are_trained_so():
    with pytest.raises(ValueError, match="heads of the kind 'eagle' look at more than one state"):
        replace(HEADS["eagle"], reuse=2)


def test_a_place_cannot_be_used_less_than_never():
    with pytest.raises(ValueError, match="reuse=-1 must be at least 0"):
        replace(HEADS["mlp"], reuse=-1)
