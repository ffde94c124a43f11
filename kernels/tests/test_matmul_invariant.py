"""`matmul_invariant`: its values everywhere, and its bits under the interpreter and on a GPU."""

from typing import Any

import pytest
import torch
from kernelcheck import NAN, check_close, in_order
from torch.nn.functional import linear

from specdec_kernels.triton.matmul_invariant import matmul_invariant
from specdec_kernels.triton.matmul_invariant.config import LaunchConfig

SMALL = LaunchConfig(16, 16, 32, num_warps=4)


def check(x, weight, bias, device, **options: Any) -> None:
    """Run into a poisoned output and compare."""
    exact = linear(x.double(), weight.double(), None if bias is None else bias.double())
    theirs = linear(x, weight, bias)
    ordered = in_order(x, weight.T) + (0.0 if bias is None else bias)
    out = torch.full_like(theirs, NAN).to(device)
    moved = None if bias is None else bias.to(device)
    assert matmul_invariant(x.to(device), weight.to(device), bias=moved, out=out, **options) is out
    check_close(out, [theirs, ordered], exact)


@pytest.mark.parametrize(("out_features", "in_features"), [(1, 1), (33, 80), (130, 257), (64, 64)])
@pytest.mark.parametrize("num_rows", [1, 5, 70])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.sampled(8, slow=0)
def test_odd_sizes(out_features, in_features, num_rows, has_bias: bool, device: torch.device) -> None:
    torch.manual_seed(num_rows + in_features)
    bias = torch.randn(out_features) if has_bias else None
    check(torch.randn(num_rows, in_features), torch.randn(out_features, in_features), bias, device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(1)
    x, weight, bias = (torch.randn(*shape).to(dtype) for shape in ((5, 90), (40, 90), (40,)))
    check(x, weight, bias, device)


@pytest.mark.parametrize(
    "config", [SMALL, LaunchConfig(64, 64, 32, 4), LaunchConfig(128, 128, 32, 8)], ids=str
)
def test_every_configuration(config: LaunchConfig, device: torch.device) -> None:
    torch.manual_seed(2)
    check(torch.randn(20, 100), torch.randn(70, 100), None, device, config=config)


def test_views(device: torch.device) -> None:
    torch.manual_seed(3)
    x, weight = torch.randn(2, 4, 60)[:, :, 3:40].to(device)
    out = torch.full((4, 9), NAN, device=device)
    matmul_invariant(x, weight, out=out[:, 2:6])
    torch.testing.assert_close(out[:, 2:6].cpu(), x.cpu() @ weight.cpu().T)
    assert out[:, [0, 1, 6, 7, 8]].isnan().all()


def check_bits(device: torch.device, dtype: torch.dtype = torch.float32, config=None) -> None:
    """A row has the same bits in passes of any length, wherever in them it lies."""
    torch.manual_seed(4)
    x, weight, bias = (torch.randn(*shape).to(dtype).to(device) for shape in ((64, 150), (50, 150), (50,)))
    whole = matmul_invariant(x, weight, bias=bias, config=config)
    for num_rows in (1, 2, 5, 17, 64):
        for first in {0, 7, 64 - num_rows}:
            piece = slice(first, first + num_rows)
            result = matmul_invariant(x[piece], weight, bias=bias, config=config)
            assert torch.equal(result, whole[piece])


@pytest.mark.parametrize("config", [None, SMALL], ids=["heuristic", "small"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_does_not_depend_on_the_others(dtype, config, kernel_device: torch.device) -> None:
    check_bits(kernel_device, dtype, config)


def test_a_block_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="block_depth=8"):
        LaunchConfig(16, 16, 8, 4)


def test_no_rows(device: torch.device) -> None:
    out = matmul_invariant(torch.empty(0, 8, device=device), torch.ones(3, 8, device=device))
    assert out.shape == (0, 3)


X, W = torch.zeros(3, 8), torch.zeros(5, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": X[0]}, r"x must be float32, float16 or bfloat16 \[T, K\], not float32 \[8\]"),
        ({"x": X.double()}, "not float64"),
        ({"x": torch.zeros(8, 3).T}, "x must have unit stride"),
        ({"weight": W[:, :7]}, r"weight must be float32 \[N, 8\], not float32 \[5, 7\]"),
        ({"weight": W.half()}, "weight must be float32"),
        ({"weight": W.to("meta")}, "weight is on meta"),
        ({"bias": W[0]}, r"bias must be float32 \[5\], not float32 \[8\]"),
        ({"out": X}, r"out must be float32 \[3, 5\], not float32 \[3, 8\]"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        matmul_invariant(**({"x": X, "weight": W} | changes))


def check_all(device: torch.device) -> None:
    torch.manual_seed(5)
    check(torch.randn(20, 70), torch.randn(40, 70), torch.randn(40), device, config=SMALL)
    check_bits(device, config=SMALL)


MUTANTS = {
    "takes a tile that follows the rows": ("=config.block_depth,", "=config.block_depth if num_rows > 2 else 64,"),
    "sums in another order where rows are few": ("depths = first + ", "depths = (first if num_rows > 9 else 128 - first) + "),
    "forgets the last numbers": ("range(0, DEPTH, BLOCK_DEPTH)", "range(0, DEPTH - BLOCK_DEPTH, BLOCK_DEPTH)"),
    "forgets the bias": ("if bias_ptr is not None:", "if bias_ptr is None:"),
    "writes the first rows": ("rows.to(tl.int64)[:, None] * out_stride", "(rows % BLOCK_ROWS)[:, None] * out_stride"),
    "multiplies the first columns": ("columns.to(tl.int64)[:, None] * weight", "(columns % BLOCK_COLUMNS)[:, None] * weight"),
}  # fmt: skip


def test_what_the_mutants_are_tested_with_passes(kernel_device: torch.device) -> None:
    check_all(kernel_device)


@pytest.mark.interpreter
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_kernel_fails(name: str, check_mutant) -> None:
    check_mutant("matmul_invariant", MUTANTS[name], lambda: check_all(torch.device("cpu")))
