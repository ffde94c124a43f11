"""`accepted_rows` against plain Python: the reference everywhere, the kernel under the interpreter and on a GPU."""

from typing import Any

import pytest
import torch

from specdec_kernels.triton import accepted_rows
from specdec_kernels.triton.launch import LaunchConfig

STARTS, COUNTS = [0, 4, 5, 9], [2, 0, 3, -1]
"""Of requests with 3, 0, 3 and 2 nodes; the last one emits nothing."""
ROWS = [0, 1, 2, 4, 5, 6, 7, 8]
"""What they emit was predicted by these."""


def check(num_places: int, width: int, device: torch.device, dtype: torch.dtype, **options: Any) -> None:
    """Run on `device`; a place behind the last row keeps what it had."""
    states = torch.arange(3 * 12 * width).view(3, 12, width).to(dtype)
    out = torch.full((3, num_places, width), -7.0, dtype=dtype)
    wanted = out.clone()
    wanted[:, : len(ROWS)] = states[:, ROWS[:num_places]]
    given = [torch.tensor(numbers, device=device) for numbers in (STARTS, COUNTS)]
    got = accepted_rows(states.to(device), *given, out=out.to(device), **options)
    assert torch.equal(got.cpu(), wanted)


@pytest.mark.parametrize("width", [1, 64, 200, 1100])
@pytest.mark.parametrize("num_places", [5, 8, 16])
@pytest.mark.sampled(5, slow=0)
def test_rows_follow_each_other(num_places: int, width: int, device: torch.device) -> None:
    check(num_places, width, device, torch.float32)


@pytest.mark.parametrize(
    "config", [LaunchConfig(256, 1), LaunchConfig(512, 4), LaunchConfig(1024, 4)], ids=str
)
def test_every_configuration(config: LaunchConfig, device: torch.device) -> None:
    check(16, 700, device, torch.bfloat16, config=config)


def test_many_requests(device: torch.device) -> None:
    states = torch.arange(200.0, device=device).view(1, 200, 1)
    starts, counts = 5 * torch.arange(40, device=device), torch.arange(40, device=device) % 5
    out = accepted_rows(states, starts, counts, out=torch.zeros(1, 160, 1, device=device))
    wanted = [5 * row + node for row in range(40) for node in range(row % 5 + 1)]
    assert out[0, : len(wanted), 0].tolist() == wanted
    assert not out[0, len(wanted) :].any()


def test_rows_that_a_pass_does_not_have_are_not_read(device: torch.device) -> None:
    states = torch.ones(1, 2, 3, device=device)
    starts, counts = torch.tensor([1], device=device), torch.tensor([3], device=device)
    out = accepted_rows(states, starts, counts, out=torch.zeros(1, 4, 3, device=device))
    assert out[0, :, 0].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_states_of_a_wider_tensor(device: torch.device) -> None:
    """A pass that is smaller than the largest one has the first rows of its tensor."""
    wide = torch.arange(2 * 8 * 4.0, device=device).view(2, 8, 4)
    starts, counts = torch.tensor([2], device=device), torch.tensor([1], device=device)
    out = accepted_rows(wide[:, :5], starts, counts, out=torch.zeros(2, 2, 4, device=device))
    assert torch.equal(out, wide[:, 2:4])


def test_paths_of_trees(device: torch.device) -> None:
    states = torch.arange(2 * 30 * 3.0, device=device).view(2, 30, 3)
    starts, counts = torch.tensor([2, 10, 12], device=device), torch.tensor([2, 0, 3], device=device)
    nodes = torch.tensor([[1, 4, -1], [-1, -1, -1], [0, 2, 9]], device=device)
    out = accepted_rows(states, starts, counts, nodes=nodes, out=torch.zeros(2, 9, 3, device=device))
    assert torch.equal(out[:, :8], states[:, [2, 4, 7, 10, 12, 13, 15, 22]])
    assert not out[:, 8:].any()
    short = accepted_rows(states, starts, counts, nodes=nodes, out=torch.zeros(2, 6, 3, device=device))
    assert torch.equal(short, out[:, :6])


NUMBERS = torch.zeros(2, dtype=torch.int64)
STATES = torch.zeros(2, 3, 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": STATES[0]}, r"states must be \[N, R, H\] with unit stride along H, not float32 \[3, 4\]"),
        ({"out": STATES[:1]}, r"out must be \[2, T, 4\], not float32 \[1, 3, 4\]"),
        ({"out": STATES.double()}, r"out must be contiguous float32 \[2, 3, 4\], not float64"),
        ({"row_starts": NUMBERS.int()}, r"row_starts must be contiguous int64 \[2\], not int32"),
        ({"num_accepted": NUMBERS[:1]}, r"num_accepted must be contiguous int64 \[2\], not int64 \[1\]"),
        ({"nodes": torch.zeros(3, 2).long()}, r"nodes must be contiguous int64 \[2, 2\], not int64 \[3, 2\]"),
        ({"num_accepted": NUMBERS.to("meta")}, "num_accepted is on meta"),
    ],
)
def test_bad_arguments(changes: dict[str, torch.Tensor], message: str) -> None:
    given = {"states": STATES, "row_starts": NUMBERS, "num_accepted": NUMBERS, "out": STATES.clone()}
    with pytest.raises(ValueError, match=message):
        accepted_rows(**(given | changes))
