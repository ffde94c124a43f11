"""`block_tables` against plain Python: the reference everywhere, the kernel under the interpreter and on a GPU."""

from typing import Any

import pytest
import torch

from specdec_kernels.triton.block_tables import block_tables
from specdec_kernels.triton.launch import LaunchConfig

FIRSTS, COUNTS, SHARED = [7, -40, 0, 2**33], [0, 45, 3, 1], [5, 100, 9, 2**34]
"""Of requests: one that shares nothing, one whose run is near the cache's beginning, and others."""


def check(firsts, counts, shared, width: int, device: torch.device, **options: Any) -> None:
    """Run on `device` and compare each entry."""
    wanted = [
        [(s if column < count else first) + column for column in range(width)]
        for first, count, s in zip(firsts, counts, shared, strict=True)
    ]
    given = [torch.tensor(numbers, device=device) for numbers in (firsts, counts, shared)]
    assert block_tables(*given, width, **options).tolist() == wanted


@pytest.mark.parametrize("width", [1, 3, 45, 46, 1030])
def test_widths(width: int, device: torch.device) -> None:
    check(FIRSTS, COUNTS, SHARED, width, device)


def test_one_request(device: torch.device) -> None:
    check([3], [2], [1], 5, device)


@pytest.mark.parametrize(
    "config", [LaunchConfig(128, 1), LaunchConfig(256, 4), LaunchConfig(1024, 4)], ids=str
)
def test_every_configuration(config: LaunchConfig, device: torch.device) -> None:
    check(FIRSTS, COUNTS, SHARED, 700, device, config=config)


def test_a_given_place(device: torch.device) -> None:
    out = torch.full((4, 50), -1, device=device)
    check(FIRSTS, COUNTS, SHARED, 50, device, out=out)
    assert out[1, 44:46].tolist() == [144, 5]


def test_nothing(device: torch.device) -> None:
    none = torch.zeros(0, dtype=torch.int64, device=device)
    assert block_tables(none, none, none, 4).shape == (0, 4)


NUMBERS = torch.zeros(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first_blocks": NUMBERS[None]}, r"first_blocks must be int64 \[B\], not int64 \[1, 2\]"),
        ({"first_blocks": NUMBERS.int()}, r"first_blocks must be contiguous int64 \[2\], not int32"),
        ({"num_shared": NUMBERS[:1]}, r"num_shared must be contiguous int64 \[2\], not int64 \[1\]"),
        ({"shared_blocks": NUMBERS.float()}, r"shared_blocks must be contiguous int64 \[2\], not float32"),
        ({"shared_blocks": NUMBERS.to("meta")}, "shared_blocks is on meta"),
        ({"out": torch.zeros(2, 3)}, r"out must be contiguous int64 \[2, 3\], not float32"),
        ({"out": torch.zeros(3, 2, dtype=torch.int64).T}, r"out must be contiguous int64 \[2, 3\], not with"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, torch.Tensor], message: str) -> None:
    arguments = {"first_blocks": NUMBERS, "num_shared": NUMBERS, "shared_blocks": NUMBERS, "width": 3}
    with pytest.raises(ValueError, match=message):
        block_tables(**(arguments | changes))


def test_configurations() -> None:
    with pytest.raises(ValueError, match="block=48"):
        LaunchConfig(48, 4)


MUTANTS = {
    "shares a block too many": ("columns < tl.load", "columns <= tl.load"),
    "shares nothing": ("tl.where(is_shared, shared, first)", "first"),
    "counts shared blocks from 0": ("shared, first) + columns", "shared, first + columns)"),
    "writes the first table alone": ("request * width", "0 * width"),
    "leaves the last column": ("mask=columns < width", "mask=columns < width - 1"),
}


@pytest.mark.interpreter
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_kernel_fails(name: str, check_mutant) -> None:
    def check_all() -> None:
        for width in (40, 50):
            check(FIRSTS, COUNTS, SHARED, width, torch.device("cpu"))

    check_mutant("block_tables", None, check_all)
    check_mutant("block_tables", MUTANTS[name], check_all)
