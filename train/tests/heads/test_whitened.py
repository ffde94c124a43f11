"""A map that is learnt of whitened inputs is the same map."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from specdec_train.heads import factored
from specdec_train.heads.factored import merge, set_whitened, whiten


def test_whitened_map_is_the_map_and_its_inputs_are_unlike() -> None:
    torch.manual_seed(0)
    shared = torch.randn(400, 1)
    inputs = torch.cat((5 * shared + 0.1 * torch.randn(400, 3), torch.randn(400, 2)), 1)
    scale = inputs.square().mean(0).rsqrt()
    weight = torch.randn(4, 5)
    moments = (inputs * scale).T @ (inputs * scale) / len(inputs)

    linear = nn.Linear(5, 4, bias=False)
    whiten(linear)
    set_whitened(linear, weight, scale, moments)

    torch.testing.assert_close(linear(inputs), inputs * scale @ weight.T, rtol=1e-4, atol=1e-4)
    stages = linear.parametrizations
    assert isinstance(stages, nn.ModuleDict)
    stage = stages["weight"][0]  # type: ignore[index]  # a list of modules
    seen = inputs * scale @ stage.whitening
    torch.testing.assert_close(seen.T @ seen / len(seen), torch.eye(5), rtol=1e-3, atol=1e-3)

    merge(linear)
    assert not parametrize.is_parametrized(linear)
    torch.testing.assert_close(linear(inputs), inputs * scale @ weight.T, rtol=1e-4, atol=1e-4)


def test_of_very_many_inputs_only_the_sizes_are_made_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factored, "_MOST_WHITENED", 4)
    torch.manual_seed(0)
    weight, scale, inputs = torch.randn(3, 5), torch.rand(5) + 0.5, torch.randn(7, 5)
    linear = nn.Linear(5, 3, bias=False)
    whiten(linear)
    set_whitened(linear, weight, scale, torch.eye(5))
    assert torch.equal(linear.get_parameter("parametrizations.weight.original"), weight)
    torch.testing.assert_close(linear(inputs), inputs * scale @ weight.T)
