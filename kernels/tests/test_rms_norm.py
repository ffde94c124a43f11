"""`rms_norm` against plain torch: the reference everywhere, the kernel under the interpreter and on a GPU."""

from typing import Any

import pytest
import torch
from kernelcheck import NAN, check_close

from specdec_kernels.triton import Backend, use_backend
from specdec_kernels.triton.rms_norm import NormOutput, rms_norm


def naive(x, weight, residual, epsilon, dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm with every operation in `dtype`, and what was normed, in the type of x."""
    total = x if residual is None else x + residual
    wide = total.to(dtype)
    normed = wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + epsilon)
    return normed * weight.to(dtype), total


def check(x, weight, residual, device, epsilon=1e-6, **options: Any) -> None:
    """Run into poisoned outputs and compare."""
    exact, total = naive(x, weight, residual, epsilon, torch.float64)
    theirs, _ = naive(x, weight, residual, epsilon, x.dtype)
    out = NormOutput(*(None if t is None else torch.full_like(x, NAN).to(device) for t in (x, residual)))
    inputs = (x.to(device), weight.to(device))
    moved = None if residual is None else residual.to(device)
    arguments = {"residual": moved, "epsilon": epsilon, "out": out} | options
    assert rms_norm(*inputs, **arguments) is out
    check_close(out.normed, theirs, exact)
    if out.residual is not None:
        assert torch.equal(out.residual.cpu(), total)


@pytest.mark.parametrize("size", [1, 64, 80, 1000, 4097])
@pytest.mark.parametrize("num_rows", [1, 5])
@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.sampled(7, slow=0)
def test_odd_sizes(size: int, num_rows: int, has_residual: bool, device: torch.device) -> None:
    torch.manual_seed(size)
    x = torch.randn(num_rows, size) * 3
    check(x, torch.rand(size), torch.randn(num_rows, size) if has_residual else None, device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(1)
    x, residual = torch.randn(3, 200).to(dtype), torch.randn(3, 200).to(dtype)
    check(x, torch.randn(200).to(dtype), residual, device)
    check(x, torch.randn(200), residual, device)  # weights of another type


def test_rows_of_zeros_and_large_rows(device: torch.device) -> None:
    x = torch.zeros(3, 40)
    x[1] = 1e18
    x[2, 7] = 1e-18
    check(x, torch.ones(40), None, device, epsilon=1e-5)


def test_outputs_may_be_inputs_and_views(device: torch.device) -> None:
    torch.manual_seed(2)
    wide = torch.randn(4, 3, 50).to(device)
    x, residual = wide[:, 0], wide[:, 1]
    expected = rms_norm(x.clone(), torch.ones(50, device=device), epsilon=1e-6, residual=residual.clone())
    kept = wide[:, 2].clone()
    rms_norm(x, torch.ones(50, device=device), epsilon=1e-6, residual=residual, out=NormOutput(x, residual))
    torch.testing.assert_close(wide[:, 0], expected.normed, rtol=1e-6, atol=1e-6)
    assert torch.equal(wide[:, 1], expected.residual)
    assert torch.equal(wide[:, 2], kept)


@pytest.mark.parametrize(
    "kind",
    [pytest.param("cpu", marks=pytest.mark.interpreter), pytest.param("cuda", marks=pytest.mark.gpu)],
)
@pytest.mark.parametrize("size", [80, 1000])
def test_a_row_does_not_depend_on_the_batch(size: int, kind: str) -> None:
    torch.manual_seed(3)
    x, residual, weight = (torch.randn(*shape).to(kind) for shape in ((17, size), (17, size), (size,)))
    with use_backend(Backend.TRITON):
        batch = rms_norm(x, weight, epsilon=1e-6, residual=residual).normed
        for first, last in ((0, 1), (16, 17), (3, 8)):
            piece = slice(first, last)
            rows = rms_norm(x[piece], weight, epsilon=1e-6, residual=residual[piece]).normed
            assert torch.equal(rows, batch[piece])


@pytest.mark.parametrize("num_warps", [1, 4, 16])
def test_every_configuration(num_warps: int, device: torch.device) -> None:
    torch.manual_seed(4)
    check(torch.randn(2, 1000), torch.randn(1000), None, device, num_warps=num_warps)


def test_no_rows(device: torch.device) -> None:
    out = rms_norm(torch.empty(0, 8, device=device), torch.ones(8, device=device), epsilon=1e-6)
    assert out.normed.shape == (0, 8)
    assert out.residual is None


X = torch.zeros(3, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": X[0]}, r"x must be float32, float16 or bfloat16 \[T, H\], not float32 \[8\]"),
        ({"x": X.double()}, "not float64"),
        ({"x": torch.zeros(8, 3).T}, "x must have unit stride"),
        (
            {"weight": torch.ones(7)},
            r"weight must be contiguous floating point \[8\] on cpu, not float32 \[7\]",
        ),
        ({"weight": torch.ones(8, device="meta")}, "on meta"),
        ({"residual": X[:2]}, r"residual must be float32 \[3, 8\]"),
        ({"residual": X.half()}, "residual must be float32"),
        ({"epsilon": -1.0}, "epsilon=-1.0"),
        ({"out": NormOutput(X, X)}, "out.residual must be given with a residual, and only then"),
        ({"out": NormOutput(X[:2], None)}, r"out.normed must be float32 \[3, 8\]"),
        ({"residual": X, "out": NormOutput(X, X[:2])}, r"out.residual must be float32 \[3, 8\]"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rms_norm(**({"x": X, "weight": torch.ones(8), "epsilon": 1e-6} | changes))


MUTANTS = {
    "forgets the residual": ("residual.to(tl.float32)).to(total", "0.0).to(total"),
    "scales the sum": ("wide = total.to(tl.float32)", "wide = total.to(tl.float32) * 1.001"),
    "divides by the block": ("/ SIZE", "/ BLOCK"),
    "forgets the weight": ("tl.sqrt_rn(mean + EPSILON)) * weight", "tl.sqrt_rn(mean + EPSILON))"),
    "forgets epsilon": ("mean + EPSILON", "mean"),
    "writes the first row": ("normed_ptr + row *", "normed_ptr + 0 *"),
    "keeps the old residual": ("columns, total, mask", "columns, residual, mask"),
}


def check_all() -> None:
    torch.manual_seed(5)
    x, residual, weight = torch.randn(3, 40), torch.randn(3, 40), torch.randn(40)
    check(x, weight, residual, torch.device("cpu"), epsilon=0.1)


@pytest.mark.interpreter
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_kernel_fails(name: str, check_mutant) -> None:
    check_mutant("rms_norm", None, check_all)
    check_mutant("rms_norm", MUTANTS[name], check_all)
