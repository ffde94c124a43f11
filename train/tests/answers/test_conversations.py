"""Batches of conversations: one a row, and only answers count."""

from __future__ import annotations

import random

import pytest
import torch

from specdec_train.answers.conversations import Conversations, padded
from specdec_train.answers.record import Answered


def make(count=40, **changes):
    draw = random.Random(1)
    answered = []
    for number in range(count):
        length = draw.randint(8, 60)
        answered.append(Answered([number + 1] * length, draw.randint(1, length - 4)))
    settings = {"window": 40, "tokens_per_batch": 128, "margin": 3, "filler": 0, "seed": 5} | changes
    return answered, Conversations(answered, **settings)


def test_an_epoch_has_every_conversation_once_and_marks_its_answer():
    answered, data = make()
    seen = {}
    for index in range(len(data._batches(0))):
        batch = data.batch(index)
        assert batch[:, 0].numel() <= 128 or len(batch) == 1
        for tokens, is_answer in batch:
            number = int(tokens[0])
            assert number not in seen
            seen[number] = True
            one = answered[number - 1]
            length = min(len(one.ids), 40)
            assert torch.equal(tokens, torch.tensor([number] * length + [0] * (len(tokens) - length)))
            assert is_answer.nonzero()[:, 0].tolist() == list(range(one.num_prompt, length))
            assert len(tokens) >= length + 3
    assert sorted(seen) == [n + 1 for n, one in enumerate(answered) if one.num_learnt(40)]


def test_a_batch_is_a_function_of_its_number():
    _, data = make()
    later = data.batch(37)
    _, again = make()
    assert torch.equal(again.batch(37), later)
    assert not torch.equal(make(seed=6)[1].batch(0)[:, 0, :8], data.batch(0)[:, 0, :8])


def test_answers_outside_the_window_leave_nothing():
    with pytest.raises(ValueError, match="none of 1 conversations has an answer within 16 tokens"):
        Conversations([Answered([1] * 30, 14)], window=16, tokens_per_batch=64, margin=1, filler=0, seed=1)


def test_filler_stands_behind_shorter_rows():
    rows = padded([Answered([7, 8, 9], 1), Answered([5, 6], 1)], 10, 2, 99)
    assert rows[:, 0].tolist() == [[7, 8, 9, 99, 99], [5, 6, 99, 99, 99]]
    assert rows[:, 1].tolist() == [[0, 1, 1, 0, 0], [0, 1, 0, 0, 0]]
