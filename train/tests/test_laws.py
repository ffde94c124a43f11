"""The loss of guesses against torch's own divergence."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from specdec_train import laws as laws_module
from specdec_train.laws import divergence, laws_of, rejection


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ids", [None, torch.arange(3, 40)])
def test_loss_and_gradient_are_torchs(ids, dtype, start) -> None:
    torch.manual_seed(1)
    wanted = 3 * torch.randn(2, 9, 50)
    among = wanted if ids is None else wanted[..., ids]
    values = (2 * torch.randn(2, 5, among.shape[-1])).to(dtype)
    ours, theirs = (values.clone().requires_grad_() for _ in range(2))
    loss = divergence(ours, laws_of(wanted, ids), start)
    expected = F.kl_div(
        torch.log_softmax(theirs.float().flatten(0, 1), -1),
        torch.log_softmax(among[:, start : start + 5].flatten(0, 1), -1),
        reduction="batchmean",
        log_target=True,
    )
    torch.testing.assert_close(loss, expected)
    (3 * loss).backward()
    (3 * expected).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    assert torch.equal(ours.detach(), values)


def test_the_target_itself_is_no_distance_away() -> None:
    wanted = 5 * torch.randn(1, 4, 30)
    assert divergence(wanted, laws_of(wanted)).abs() < 1e-5


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ids", [None, torch.arange(3, 40)])
def test_rejection_is_the_log_of_the_mass_in_common(ids, dtype, is_compiled, monkeypatch) -> None:
    if not is_compiled:
        monkeypatch.setattr(laws_module, "is_available", lambda: False)
    torch.manual_seed(2)
    wanted = 3 * torch.randn(2, 9, 50)
    law = torch.softmax(wanted if ids is None else wanted[..., ids], -1)[:, 2:7]
    values = (2 * torch.randn(2, 5, law.shape[-1])).to(dtype)
    ours, theirs = (values.clone().requires_grad_() for _ in range(2))
    loss = rejection(ours, laws_of(wanted, ids), 2)
    expected = -torch.minimum(torch.softmax(theirs.float(), -1), law).sum(-1).log().mean()
    torch.testing.assert_close(loss, expected)
    (3 * loss).backward()
    (3 * expected).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    assert torch.equal(ours.detach(), values)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_guess_with_nothing_in_common_has_a_loss_and_a_gradient(is_compiled, monkeypatch) -> None:
    if not is_compiled:
        monkeypatch.setattr(laws_module, "is_available", lambda: False)
    wanted, guess = torch.full((1, 1, 8), -200.0), torch.full((1, 1, 8), -200.0)
    wanted[..., 0], guess[..., 1] = 0.0, 0.0
    guess.requires_grad_()
    loss = rejection(guess, laws_of(wanted))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(guess.grad).all()
