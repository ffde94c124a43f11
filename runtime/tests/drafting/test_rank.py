"""Candidates for trees that grow by confidence."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from drafting_check import GREEDY, WARM, batch_of

from specdec import SamplingParams
from specdec_runtime.drafting import (
    Chooser,
    DraftPosition,
    DraftVocabulary,
    equal_vocabulary,
    reduced_vocabulary,
)

CPU = torch.device("cpu")
EQUAL = equal_vocabulary(8, 8, CPU)
LOGITS = torch.tensor([[0.0, 3.0, 1.0, 2.0, -1.0, 0.5, -2.0, 1.5]])


def chooser(method: str, vocabulary: DraftVocabulary = EQUAL) -> Chooser:
    return Chooser(method, vocabulary, wants_confidence=True)


def test_the_likeliest_come_first_with_their_probability() -> None:
    choice = chooser("greedy").rank(LOGITS, [DraftPosition(0, (), 0, 3)], batch_of(GREEDY))
    assert choice.target_ids == [[1, 3, 7]]
    assert choice.draft_ids == [[1, 3, 7]]
    assert choice.probs is None
    assert choice.confidences == [pytest.approx(LOGITS[0].softmax(-1)[[1, 3, 7]].tolist())]


def test_each_place_has_its_own_temperature_cuts_and_number() -> None:
    batch = batch_of(SamplingParams(temperature=0.5), SamplingParams(temperature=2.0, top_k=2), GREEDY)
    places = [
        DraftPosition(0, (4,), 3, 2),
        DraftPosition(1, (), 0, 4),
        DraftPosition(2, (1, 2), 7, 1),
        DraftPosition(0, (5,), 5, 1),
    ]
    choice = chooser("greedy").rank(LOGITS.expand(4, -1), places, batch)
    assert choice.target_ids == [[1, 3], [1, 3], [1], [1]]
    assert choice.confidences is not None
    assert choice.confidences[0] == pytest.approx((LOGITS[0] / 0.5).softmax(-1)[[1, 3]].tolist())
    assert choice.confidences[1] == pytest.approx((LOGITS[0, [1, 3]] / 2).softmax(-1).tolist())
    assert choice.confidences[2] == pytest.approx([float(LOGITS[0].softmax(-1)[1])])


def test_coupled_candidates_are_lifted_by_the_noise_to_come() -> None:
    # The noise lifts id (3 * row + depth) % 8 by 2.
    batch = batch_of(WARM, GREEDY)
    places = [
        DraftPosition(0, (9, 9, 9, 9), 0, 2),
        DraftPosition(1, (9, 9, 9, 9), 0, 2),
        DraftPosition(0, (9, 9), 0, 2),
    ]
    choice = chooser("coupled").rank(LOGITS.expand(3, -1), places, batch)
    assert choice.target_ids == [[1, 5], [1, 3], [3, 1]]
    assert choice.confidences is not None
    lifted = LOGITS[0] + torch.tensor([0, 0, 0, 0, 0, 2.0, 0, 0])
    assert choice.confidences[0] == pytest.approx(lifted.softmax(-1)[[1, 5]].tolist())


def test_noise_belongs_to_the_targets_ids() -> None:
    vocabulary = reduced_vocabulary(np.array([2, 5, 11]), 16, CPU)
    logits = torch.tensor([[1.0, 0.0, 0.5]])
    choice = chooser("coupled", vocabulary).rank(
        logits, [DraftPosition(0, (1, 1, 1, 1), 0, 3)], batch_of(WARM)
    )
    assert choice.target_ids == [[5, 2, 11]]
    assert choice.draft_ids == [[5, 2, 11]]


def test_grammars_leave_few_or_no_candidates() -> None:
    batch = batch_of(WARM, WARM, GREEDY, rule=lambda row, path: [[3, 6], [], None][row])
    places = [DraftPosition(row, (), 0, 3) for row in range(3)]
    choice = chooser("greedy").rank(LOGITS.expand(3, -1), places, batch)
    assert choice.target_ids == [[3, 6], [], [1, 3, 7]]
    assert choice.confidences is not None
    assert choice.confidences[0] == pytest.approx(LOGITS[0, [3, 6]].softmax(-1).tolist())
    assert math.isclose(sum(choice.confidences[0]), 1.0, abs_tol=1e-6)
    assert torch.isfinite(LOGITS).all()
