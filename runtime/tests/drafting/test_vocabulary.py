"""Reduced vocabularies: logits over some of the target's ids, input over all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from drafting_check import WARM, batch_of

from specdec_runtime.drafting import Chooser, DraftPosition, equal_vocabulary, reduced_vocabulary

CPU = torch.device("cpu")
IDS = np.array([2, 5, 11, 12])


def test_logits_go_to_the_targets_ids_and_back() -> None:
    vocabulary = reduced_vocabulary(IDS, 16, CPU)
    logits = torch.randn(3, 4)
    assert torch.equal(vocabulary.restrict(logits), logits)
    wide = vocabulary.spread(logits)
    assert wide.shape == (3, 16)
    assert torch.equal(wide[:, IDS], logits)
    assert (wide == -math.inf).sum() == 3 * 12
    assert torch.equal(vocabulary.narrow(wide), logits)
    assert vocabulary.index_of(torch.tensor([11, 2])).tolist() == [2, 0]
    assert (vocabulary.num_ids, vocabulary.vocab_size) == (4, 16)


def test_a_head_is_fed_the_targets_ids() -> None:
    vocabulary = reduced_vocabulary(IDS, 16, CPU)
    assert vocabulary.name([0, 3]) == ([2, 12], [2, 12])
    assert vocabulary.to_draft(np.array([15, 0])).tolist() == [15, 0]


def test_a_draft_with_fewer_ids_reads_its_last_one_in_place_of_those_it_lacks() -> None:
    fewer, more = equal_vocabulary(16, 12, CPU), equal_vocabulary(16, 20, CPU)
    assert fewer.to_draft(np.array([11, 12, 15, 0], np.int32)).tolist() == [11, 11, 11, 0]
    assert more.to_draft(np.array([11, 12, 15, 0], np.int32)).tolist() == [11, 12, 15, 0]


def test_compiled_chains_take_maps_that_rise() -> None:
    count, ids = reduced_vocabulary(IDS, 16, CPU).chain_ids(4) or (0, None)
    assert count == 4
    assert ids is not None
    assert ids.tolist() == IDS.tolist()
    assert reduced_vocabulary(IDS[::-1].copy(), 16, CPU).chain_ids(4) is None
    assert reduced_vocabulary(np.arange(4), 16, CPU).chain_ids(4) == (4, None)
    assert equal_vocabulary(16, 20, CPU).chain_ids(20) == (16, None)
    assert equal_vocabulary(16, 12, CPU).chain_ids(12) == (12, None)


@pytest.mark.parametrize("ids", [IDS, IDS[::-1].copy()], ids=["rising", "falling"])
@pytest.mark.parametrize("method", ["greedy", "coupled", "probabilistic"])
def test_choices_are_named_in_the_targets_ids(method: str, ids: np.ndarray) -> None:
    chooser = Chooser(method, reduced_vocabulary(ids, 16, CPU), wants_confidence=True)
    logits = torch.tensor([[0.0, 1.0, 0.5, -1.0]])
    # Noise lifts id 3 * row + depth of the target by 2: id 5 for the second position.
    batch = batch_of(WARM, WARM)
    for path, lifted in (((), 1), ((9, 9, 9, 9), 5)):
        choice = chooser.choose(logits, [DraftPosition(0, path, 0, 1)], batch)
        noise = torch.zeros(16)
        noise[lifted] = 2.0 if method == "coupled" else 0.0
        index = int((logits[0] + noise[ids.tolist()]).argmax())
        assert choice.target_ids == [[int(ids[index])]]
        assert choice.confidences == [[pytest.approx(float(logits[0].softmax(-1)[index]))]]
