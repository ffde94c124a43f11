"""The loss of guesses against torch's own divergence."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from specdec_train.laws import divergence, laws_of


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
