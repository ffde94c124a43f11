"""Linear maps of a frozen module as compiled products."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from specdec.runner import speed_up_linears
from specdec_kernels.cpu.compiled.threads import is_available


class Other(nn.Linear):
    """A map of its own: doubles."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def module(dtype: torch.dtype) -> nn.ModuleDict:
    torch.manual_seed(0)
    maps = {"biased": nn.Linear(48, 40), "plain": nn.Linear(48, 64, bias=False), "other": Other(48, 40)}
    return nn.ModuleDict(maps).to(dtype).requires_grad_(False)


@pytest.mark.parametrize("shape", [(48,), (1, 48), (5, 48), (100, 48), (2, 3, 48), (0, 48)])
@pytest.mark.parametrize("name", ["biased", "plain", "other"])
def test_numbers_stay_the_same(name: str, shape: tuple[int, ...]) -> None:
    maps = module(torch.float32)
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    expected = maps[name](x)
    speed_up_linears(maps)
    got = maps[name](x)
    assert got.shape == expected.shape
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_numbers_of_bfloat16_stay_those_of_its_weights() -> None:
    maps = module(torch.bfloat16)
    x = torch.randn(4, 48, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    expected = x.double() @ maps["plain"].weight.double().T
    speed_up_linears(maps)
    got = maps["plain"](x)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.double(), expected, rtol=2**-8, atol=2**-8)


def test_only_plain_linear_maps_of_known_types_are_replaced() -> None:
    maps = module(torch.float32)
    speed_up_linears(maps)
    assert ("forward" in vars(maps["plain"])) == is_available()
    assert "forward" not in vars(maps["other"])
    doubles = module(torch.float64)
    speed_up_linears(doubles)
    assert "forward" not in vars(doubles["plain"])
