"""Rounded weights: how far they are, what they are found again from, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from specdec import LLM, ConfigError
from specdec_plugin_self_draft import SelfDraftConfig
from specdec_plugin_self_draft.quantize import quantized


def linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias, requires_grad=False)
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_eight_bits_are_within_half_a_step(dtype) -> None:
    torch.manual_seed(0)
    weight = torch.randn(7, 70).to(dtype)
    weight[3] = 0
    found = quantized(linear(weight), 8, 32).weight(torch.float32)
    steps = weight.float().abs().amax(1, keepdim=True) / 127
    assert ((found - weight.float()).abs() <= 0.501 * steps).all()
    assert (found[3] == 0).all()


@pytest.mark.parametrize("group_size", [32, 64])
def test_four_bits_are_within_half_a_step_but_opposite_the_extreme(group_size) -> None:
    torch.manual_seed(0)
    weight = torch.randn(5, 192)
    weight[2, :64] = 0
    found = quantized(linear(weight), 4, group_size).weight(torch.float32)
    groups, ours = weight.view(5, -1, group_size), found.view(5, -1, group_size)
    steps = groups.abs().amax(2, keepdim=True) / 8
    # The number opposite the extreme, 8, does not exist: it becomes 7.
    assert ((ours - groups).abs() <= 1.05 * steps).all()
    assert ((ours - groups).abs() <= 0.55 * steps).float().mean() > 0.95
    assert (found[2, :64] == 0).all()


def test_weights_of_q4_0_are_found_again() -> None:
    torch.manual_seed(0)
    numbers = torch.randint(-7, 8, (6, 4, 32)).float()
    numbers[..., 5] = -8
    scales = torch.rand(6, 4, 1).bfloat16().float() * torch.tensor([1.0, -1.0, 1.0, 1.0])[None, :, None]
    weight = (numbers * scales).flatten(1)
    assert torch.equal(quantized(linear(weight), 4, 32).weight(torch.float32), weight)


def test_a_bias_is_added() -> None:
    torch.manual_seed(0)
    weight, bias, x = torch.randn(9, 64), torch.randn(9), torch.randn(2, 3, 64)
    made = quantized(linear(weight, bias), 8, 32)
    assert torch.allclose(made(x), x @ made.weight(torch.float32).T + bias, atol=1e-5)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="48 is not a power of two"):
        SelfDraftConfig(num_speculative_tokens=2, weights="int4", group_size=48)
    with pytest.raises(ValueError, match="group_size does nothing with int8"):
        SelfDraftConfig(num_speculative_tokens=2, group_size=64)
    with pytest.raises(ValueError, match="greater than or equal to 32"):
        SelfDraftConfig(num_speculative_tokens=2, group_size=16)
    with pytest.raises(ConfigError, match="'group_size': 256 does not divide"):
        LLM(
            "zoo",
            speculative_config={
                "method": "self",
                "num_speculative_tokens": 2,
                "weights": "int4",
                "group_size": 256,
            },
        )
