"""Torch's products with weights of 8 and 4 bits beside the widened weights, and when they are taken."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from specdec.interfaces import Declined
from specdec_kernels.layers.packed import _product_of_4_bits, packed_product
from specdec_runtime.backends import linears
from specdec_runtime.backends.linears import QuantizedForward, slow_down, speed_up_quantized
from specdec_runtime.interfaces import QuantizedLinear

BFLOAT16 = torch.bfloat16


def rounded(num_out: int, depth: int, group: int | None, *, bias: bool = False) -> QuantizedLinear:
    """Random weights: of 8 bits, or with a group size of 4."""
    added = torch.randn(num_out, dtype=BFLOAT16) if bias else None
    if group is None:
        numbers = torch.randint(-127, 128, (num_out, depth), dtype=torch.int8)
        return QuantizedLinear(numbers, torch.rand(num_out, 1) / 127 / depth**0.5, added)
    halves = torch.randint(0, 256, (num_out, depth // 2), dtype=torch.uint8)
    scales = torch.rand(num_out, depth // group, 1) / 8 / depth**0.5
    least = -scales * 16 * torch.rand(num_out, depth // group, 1)
    return QuantizedLinear(halves, torch.cat((least, scales), 2).bfloat16(), added)


def distance(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("shape", [(1,), (3,), (64,), (2, 5), (), (0,)], ids=str)
@pytest.mark.parametrize(
    ("num_out", "depth", "group"),
    [
        (16, 32, 32),
        (48, 96, 32),
        (96, 64, 64),
        (80, 256, 128),
        (4112, 512, 256),
        (7, 96, None),
        (4100, 64, None),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.sampled(16, slow=16)
def test_products_are_those_of_the_widened_weights(shape, num_out, depth, group, bias, marked_device) -> None:
    torch.manual_seed(depth)
    module = rounded(num_out, depth, group, bias=bias).to(marked_device)
    x = torch.randn(*shape, depth, dtype=BFLOAT16).to(marked_device)
    product = packed_product(module)
    assert not isinstance(product, Declined)
    got, own = product(x), module(x)
    expected = x.double() @ module.weight(torch.float64).T + (
        0 if module.bias is None else module.bias.double()
    )
    assert got.shape == own.shape == expected.shape
    assert got.dtype == BFLOAT16
    if x.numel():
        assert distance(got, expected) <= 2 * max(distance(own, expected), 2**-9)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def marked_device(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.parametrize(("num_out", "depth"), [(8, 32), (24, 64), (4104, 128), (16, 96)])
def test_a_device_gets_weights_as_torch_says_that_it_reads_them(num_out: int, depth: int) -> None:
    with FakeTensorMode():  # where torch checks dtypes and dimensions as on a device
        packed = torch.empty(num_out, depth // 2, dtype=torch.uint8)
        scales = torch.empty(num_out, depth // 32, 2, dtype=BFLOAT16)
        product = _product_of_4_bits(QuantizedLinear(packed, scales), is_cpu=False)
        assert product(torch.empty(5, depth, dtype=BFLOAT16)).shape == (5, num_out)


@pytest.mark.parametrize(
    ("num_out", "depth", "group", "device"),
    [
        (24, 64, 32, "cpu"),
        (12, 64, 32, "meta"),
        (16, 512, 512, "cpu"),
        (16, 512, 512, "meta"),
        (8, 80, None, "cpu"),
    ],
)
def test_what_torch_has_no_product_for_is_declined(
    num_out: int, depth: int, group: int | None, device: str
) -> None:
    assert isinstance(packed_product(rounded(num_out, depth, group).to(device)), Declined)


class Times:
    """Times of products and of widening, by the number of rows."""

    def __init__(self, faster_up_to: int) -> None:
        self.faster_up_to, self.timed = faster_up_to, 0

    def __call__(self, product: object, x: torch.Tensor) -> float:
        self.timed += 1
        return 1.0 if isinstance(product, nn.Module) else 0.5 + (len(x) > self.faster_up_to)


def maps() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(rounded(64, 64, 32), rounded(64, 64, 32), rounded(32, 64, None))


@pytest.mark.parametrize(("faster_up_to", "taken"), [(0, 0), (1, 1), (20, 16), (999, 64)])
def test_the_faster_way_is_measured_once_for_each_shape(
    faster_up_to: int, taken: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = Times(faster_up_to)
    monkeypatch.setattr(linears, "_seconds", times)
    modules = maps()
    with caplog.at_level("INFO", "specdec"):
        speed_up_quantized(modules, BFLOAT16)
    forwards = [vars(module).get("forward") for module in modules]
    assert [forward and forward._most_rows for forward in forwards] == [taken or None] * 3
    assert times.timed == 2 * 2 * min(4, {0: 1, 1: 2, 16: 4, 64: 4}[taken])
    assert f"of 3 maps with weights of 8 or 4 bits {3 * bool(taken)} are multiplied" in caplog.text


def test_more_rows_other_dtypes_and_copies_are_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linears, "_seconds", Times(1))
    modules = maps()
    speed_up_quantized(modules, BFLOAT16)
    first = modules[0]
    calls = []
    assert isinstance(first.forward, QuantizedForward)
    first.forward._product = lambda x: calls.append(x.shape) or torch.zeros(*x.shape[:-1], 64)
    one, two = torch.randn(1, 64, dtype=BFLOAT16), torch.randn(2, 64, dtype=BFLOAT16)
    own = QuantizedLinear.forward
    assert not first(one).any()
    assert torch.equal(first(two), own(first, two))
    assert torch.equal(first(one.float()), own(first, one.float()))
    assert torch.equal(copy.deepcopy(modules)[0](one), own(first, one))
    assert calls == [one.shape]
    slow_down(modules)
    assert torch.equal(first(one), own(first, one))


def test_in_other_dtypes_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linears, "_seconds", Times(999))
    modules = maps()
    speed_up_quantized(modules, torch.float32)
    assert not any("forward" in vars(module) for module in modules)


@pytest.mark.parametrize("wrong", ["rows", "scales"])
def test_a_product_with_another_layout_is_not_used(
    wrong: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from specdec_kernels.layers import packed

    right = packed._laid_out

    def other(numbers: torch.Tensor, *, is_cpu: bool) -> torch.Tensor:
        changed = numbers.roll(1, 0) if wrong == "rows" else numbers.view(-1, 2).flip(1).view(numbers.shape)
        return right(changed, is_cpu=is_cpu)

    monkeypatch.setattr(packed, "_laid_out", other)
    monkeypatch.setattr(linears, "_seconds", Times(999))
    modules = maps()
    speed_up_quantized(modules, BFLOAT16)
    assert ["forward" in vars(module) for module in modules] == [False, False, True]
    assert "differs from torch's" in caplog.text
