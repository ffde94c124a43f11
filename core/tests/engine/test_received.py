"""What the engine takes from a draft: tensors of its own."""

from __future__ import annotations

import pytest
import torch

from specdec.engine.containment.draft import DraftError, receive
from specdec.interfaces import Draft, DraftSampling

VOCAB = 5
IDS = torch.tensor([[1, 2, 3], [4, 0, 1]])


def probs(width: int = 4) -> torch.Tensor:
    return torch.full((2, width, VOCAB), 1 / VOCAB)


def test_nothing_is_the_plugins_afterwards() -> None:
    ids, parents, confidence, q = IDS.clone(), torch.tensor([[-1, 0, 0]] * 2), torch.rand(2, 3), probs()
    given = Draft(
        token_ids=ids, parents=parents, confidence=confidence, node_probs=q, sampling=DraftSampling.IID
    )
    got = receive(given, 2, 3, VOCAB)
    before = [field.clone() for field in (ids, parents, confidence, q)]
    for field in (ids, parents, confidence, q):
        field.zero_()
    for own, old in zip((got.token_ids, got.parents, got.confidence, got.node_probs), before, strict=True):
        assert own is not None
        assert torch.equal(own, old)


def test_as_many_nodes_as_the_largest_cap() -> None:
    given = Draft(
        token_ids=IDS, parents=torch.tensor([[-1, 0, 0]] * 2), node_probs=probs(), sampling=DraftSampling.IID
    )
    got = receive(given, 2, 2, VOCAB)
    assert got.parents is not None
    assert got.node_probs is not None
    assert (got.parents.shape, got.node_probs.shape) == ((2, 2), (2, 3, VOCAB))
    assert torch.equal(got.token_ids, IDS), "what is above the cap is counted"


def test_some_rows_may_have_no_q() -> None:
    has_probs = torch.tensor([True, False])
    given = Draft(token_ids=IDS, node_probs=probs(), has_probs=has_probs, sampling=DraftSampling.IID)
    got = receive(given, 2, 3, VOCAB)
    assert (got.sampling, got.node_probs is None) == (DraftSampling.IID, False)
    has_probs.zero_()
    assert got.has_probs is not None
    assert got.has_probs.tolist() == [True, False]


def test_memory_behind_the_end_is_not_read() -> None:
    whole = torch.zeros(6, dtype=torch.int64)
    ids = whole[2:].view(2, 2)
    receive(Draft(token_ids=ids), 2, 3, VOCAB)
    whole.untyped_storage().resize_(5 * 8)
    with pytest.raises(DraftError, match="larger than its memory"):
        receive(Draft(token_ids=ids), 2, 3, VOCAB)


def test_subclasses_are_refused_and_parameters_are_not() -> None:
    with pytest.raises(DraftError, match=r"Draft\.confidence is Own, not a tensor"):
        receive(Draft(token_ids=IDS, confidence=torch.zeros(2, 3).as_subclass(Own)), 2, 3, VOCAB)
    receive(Draft(token_ids=IDS, confidence=torch.nn.Parameter(torch.zeros(2, 3))), 2, 3, VOCAB)


class Own(torch.Tensor):
    """A class whose methods are the plugin's."""
