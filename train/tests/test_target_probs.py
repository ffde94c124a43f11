"""The loss of guesses against torch's own divergence."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from specdec_train import target_probs as module
from specdec_train.target_probs import divergence, rejection, target_probs_of


@pytest.mark.parametrize("rows", [torch.arange(5), torch.tensor([8, 0, 3, 3, 1])])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ids", [None, torch.arange(3, 40)])
def test_loss_and_gradient_are_torchs(ids, dtype, rows) -> None:
    torch.manual_seed(1)
    wanted = 3 * torch.randn(9, 50)
    among = wanted if ids is None else wanted[..., ids]
    values = (2 * torch.randn(5, among.shape[-1])).to(dtype)
    ours, theirs = (values.clone().requires_grad_() for _ in range(2))
    loss = divergence(ours, target_probs_of(among), rows)
    expected = F.kl_div(
        torch.log_softmax(theirs.float(), -1),
        torch.log_softmax(among[rows], -1),
        reduction="batchmean",
        log_target=True,
    )
    torch.testing.assert_close(loss, expected)
    (3 * loss).backward()
    (3 * expected).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    assert torch.equal(ours.detach(), values)


def test_the_target_itself_is_no_distance_away() -> None:
    wanted = 5 * torch.randn(4, 30)
    assert divergence(wanted, target_probs_of(wanted), torch.arange(4)).abs() < 1e-5


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ids", [None, torch.arange(3, 40)])
def test_rejection_is_the_log_of_the_mass_in_common(ids, dtype, is_compiled, monkeypatch) -> None:
    if not is_compiled:
        monkeypatch.setattr(module, "is_available", lambda: False)
    torch.manual_seed(2)
    wanted, rows = 3 * torch.randn(9, 50), torch.arange(2, 7)
    among = wanted if ids is None else wanted[..., ids]
    law = torch.softmax(among, -1)[rows]
    values = (2 * torch.randn(5, law.shape[-1])).to(dtype)
    ours, theirs = (values.clone().requires_grad_() for _ in range(2))
    loss = rejection(ours, target_probs_of(among), rows)
    expected = -torch.minimum(torch.softmax(theirs.float(), -1), law).sum(-1).log().mean()
    torch.testing.assert_close(loss, expected)
    (3 * loss).backward()
    (3 * expected).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    assert torch.equal(ours.detach(), values)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_guess_with_nothing_in_common_has_a_loss_and_a_gradient(is_compiled, monkeypatch) -> None:
    if not is_compiled:
        monkeypatch.setattr(module, "is_available", lambda: False)
    wanted, guess = torch.full((1, 8), -200.0), torch.full((1, 8), -200.0)
    wanted[..., 0], guess[..., 1] = 0.0, 0.0
    guess.requires_grad_()
    loss = rejection(guess, target_probs_of(wanted), torch.zeros(1, dtype=torch.int64))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(guess.grad).all()
