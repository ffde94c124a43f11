"""Muon against the definition of its update and against torch's own."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from specdec_train.muon import Muon, orthogonalize
from specdec_train.optimizer import OptimizerPair


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 5, 17), (2, 17, 5), (1, 1, 7)])
def test_orthogonalize_keeps_directions_and_evens_out_sizes(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    result = orthogonalize(matrices, steps=8)
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    in_their_basis = left.mT @ result @ right.mT
    diagonal = torch.diagonal(in_their_basis, dim1=-2, dim2=-1)
    assert diagonal.min() > 0.6
    assert diagonal.max() < 1.25
    assert (in_their_basis - torch.diag_embed(diagonal)).abs().max() < 1e-3


def test_same_update_as_torch_up_to_bfloat16() -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(12, 6, generator=generator)
    grads = [torch.randn(12, 6, generator=generator) for _ in range(3)]
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    optimizers = (Muon([ours], 0.1, weight_decay=0.5), torch.optim.Muon([theirs], lr=0.1, weight_decay=0.5))
    for grad in grads:
        ours.grad, theirs.grad = grad.clone(), grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert (ours - start).abs().max() > 0.1
    torch.testing.assert_close(ours, theirs, atol=0.01, rtol=0)


def test_matrices_of_one_shape_do_not_mix() -> None:
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(4, 6, generator=generator) for _ in range(3)]
    together = [torch.nn.Parameter(value.clone()) for value in values]
    alone = [torch.nn.Parameter(value.clone()) for value in values]
    for params in (together, alone):
        for param, value in zip(params, values, strict=True):
            param.grad = value.flip(0)
    together[1].grad = None
    Muon(together, 0.1).step()
    for param in (alone[0], alone[2]):
        Muon([param], 0.1).step()
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other)


def test_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match=r"matrices only, got a parameter of shape \(3,\)"):
        Muon([torch.nn.Parameter(torch.zeros(3))], 0.1)


def test_pair_scales_both_and_restores() -> None:
    def build() -> tuple[torch.nn.Module, OptimizerPair]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        return model, OptimizerPair(model, muon_lr=0.1, adamw_lr=0.01, weight_decay=0.0)

    def step(model: torch.nn.Module, pair: OptimizerPair, multiplier: float) -> None:
        model(torch.ones(2, 3)).square().sum().backward()
        pair.step(multiplier)

    model, pair = build()
    before = [param.clone() for param in model.parameters()]
    step(model, pair, 0.0)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    step(model, pair, 1.0)
    assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))

    other, other_pair = build()
    other.load_state_dict(model.state_dict())
    other_pair.load_state_dict(deepcopy(pair.state_dict()))
    step(model, pair, 0.5)
    step(other, other_pair, 0.5)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_pair_needs_something_to_train() -> None:
    model = torch.nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(ValueError, match="no trainable parameters"):
        OptimizerPair(model, muon_lr=0.1, adamw_lr=0.1, weight_decay=0.0)
