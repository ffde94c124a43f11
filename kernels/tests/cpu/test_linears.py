"""Linear maps of a frozen module as compiled products."""

from __future__ import annotations

import copy

import pytest
import torch
from speccheck.engines import engine_of, make_llm
from speccheck.models import tiny
from torch import nn

from specdec_kernels.cpu.compiled.threads import is_available
from specdec_runtime.backends import speed_up_linears


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


def test_modules_with_hooks_are_left_alone() -> None:
    maps = module(torch.float32)
    maps["plain"].register_forward_hook(lambda *_: None)
    speed_up_linears(maps)
    assert "forward" not in vars(maps["plain"])


def test_gradients_other_weights_and_copies_are_torchs() -> None:
    maps = module(torch.float32)
    speed_up_linears(maps)
    plain, x = maps["plain"], torch.randn(3, 48, requires_grad=True)
    plain(x).sum().backward()
    torch.testing.assert_close(x.grad, plain.weight.sum(0).expand(3, -1))
    wide = copy.deepcopy(maps)["plain"].double()
    assert torch.equal(wide(x.double()), x.double() @ wide.weight.T)
    plain.weight.data = plain.weight.data * 2
    with torch.no_grad():
        torch.testing.assert_close(plain(x).double(), 2 * wide(x.double()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_eager", [False, True])
def test_a_model_whose_own_forward_runs_has_these_products(is_eager: bool) -> None:
    model = engine_of(make_llm(tiny("gpt_neox"), enforce_eager=is_eager))._scorer.runner.module
    fast = {name.rpartition(".")[2] for name, part in model.named_modules() if "forward" in vars(part)}
    assert fast <= {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h", "lm_head"}
    assert len(fast) == (5 if is_available() and not is_eager else 0)
