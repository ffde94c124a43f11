"""`silu_mul` against plain torch: the reference everywhere, the kernel under the interpreter and on a GPU."""

from typing import Any

import pytest
import torch
from kernelcheck import NAN, check_close

from specdec_kernels.triton import Backend, use_backend
from specdec_kernels.triton.launch import LaunchConfig
from specdec_kernels.triton.silu_mul import silu_mul


def naive(gate, up, dtype) -> torch.Tensor:
    """Every operation in `dtype`."""
    x = gate.to(dtype)
    return x * torch.sigmoid(x) * up.to(dtype)


def check(gate, up, device, **options: Any) -> None:
    """Run into a poisoned output and compare."""
    exact, theirs = (naive(gate, up, dtype) for dtype in (torch.float64, gate.dtype))
    out = torch.full_like(gate, NAN).to(device)
    result = silu_mul(gate.to(device), up.to(device), out=out, **options)
    assert result is out
    check_close(out, theirs, exact)


@pytest.mark.parametrize(("num_rows", "size"), [(1, 1), (3, 31), (2, 1000), (5, 1025), (1, 4864)])
def test_odd_sizes(num_rows: int, size: int, device: torch.device) -> None:
    torch.manual_seed(size)
    check(torch.randn(num_rows, size) * 3, torch.randn(num_rows, size), device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(1)
    check(torch.randn(3, 200).to(dtype), torch.randn(3, 200).to(dtype), device)


def test_far_from_zero(device: torch.device) -> None:
    gate = torch.tensor([[-1e6, -200.0, -90.0, -1e-30, 0.0, 1e-30, 90.0, 200.0, 1e6]])
    check(gate, torch.ones_like(gate), device)


def test_halves_of_a_projection_and_outputs_that_are_inputs(device: torch.device) -> None:
    torch.manual_seed(2)
    wide = torch.randn(4, 100).to(device)
    gate, up = wide.chunk(2, 1)
    expected, kept = silu_mul(gate, up), up.clone()
    assert silu_mul(gate, up, out=gate) is gate
    assert torch.equal(wide, torch.cat((expected, kept), 1))


@pytest.mark.parametrize(
    "kind",
    [pytest.param("cpu", marks=pytest.mark.interpreter), pytest.param("cuda", marks=pytest.mark.gpu)],
)
def test_a_row_does_not_depend_on_the_batch(kind: str) -> None:
    torch.manual_seed(3)
    gate, up = torch.randn(2, 17, 300).to(kind)
    with use_backend(Backend.TRITON):
        batch = silu_mul(gate, up)
        for piece in (slice(0, 1), slice(16, 17), slice(3, 8)):
            assert torch.equal(silu_mul(gate[piece], up[piece]), batch[piece])


@pytest.mark.parametrize(
    "config", [LaunchConfig(256, 2), LaunchConfig(512, 4), LaunchConfig(1024, 4)], ids=str
)
def test_every_configuration(config: LaunchConfig, device: torch.device) -> None:
    torch.manual_seed(4)
    check(torch.randn(2, 700), torch.randn(2, 700), device, config=config)


def test_no_rows(device: torch.device) -> None:
    empty = torch.empty(0, 8, device=device)
    assert silu_mul(empty, empty).shape == (0, 8)


X = torch.zeros(3, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gate": X[0]}, r"gate must be float32, float16 or bfloat16 \[T, F\], not float32 \[8\]"),
        ({"gate": X.double()}, "not float64"),
        ({"gate": torch.zeros(8, 3).T}, "gate must have unit stride"),
        ({"up": X[:2]}, r"up must be float32 \[3, 8\], not float32 \[2, 8\]"),
        ({"up": X.to("meta")}, "up is on meta"),
        ({"out": X.half()}, r"out must be float32 \[3, 8\]"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        silu_mul(**({"gate": X, "up": X} | changes))


def test_configurations() -> None:
    with pytest.raises(ValueError, match="block=48"):
        LaunchConfig(48, 4)


MUTANTS = {
    "takes the other half of the sigmoid": ("gate >= 0.0, 1.0, decay", "gate >= 0.0, decay, 1.0"),
    "takes the first part alone": ("tl.program_id(1) * BLOCK +", "0 * BLOCK +"),
    "forgets the other factor": ("(active * up)", "(active)"),
}


def check_all() -> None:
    torch.manual_seed(5)
    gate, up = torch.randn(2, 3, 70)
    check(gate, up, torch.device("cpu"), config=LaunchConfig(64, 1))


@pytest.mark.interpreter
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_kernel_fails(name: str, check_mutant) -> None:
    check_mutant("silu_mul", None, check_all)
    check_mutant("silu_mul", MUTANTS[name], check_all)
