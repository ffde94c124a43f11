"""`sound_probs` against plain torch: the reference everywhere, the kernel under the interpreter and on a GPU."""

from typing import Any

import pytest
import torch
from kernelcheck import NAN

from specdec_kernels.triton import sound_probs
from specdec_kernels.triton.sound_probs.config import LaunchConfig


def check(
    token_ids: torch.Tensor, probs: torch.Tensor, device: torch.device, **options: Any
) -> list[list[int]]:
    """Run on `device`; return which rows are 0 after checking that the others are as they were."""
    ids, own = sound_probs(token_ids.to(device), probs.to(device), 1e-5, **options)
    ids, own = ids.cpu(), own.cpu()
    is_kept = own.any(-1)
    assert own.is_contiguous()
    assert torch.equal(own, torch.where(is_kept[..., None], probs.clamp_min(0.0), 0.0))
    assert torch.equal(ids, torch.where(is_kept[:, :-1], token_ids, -1))
    return (~is_kept).nonzero().tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("num_ids", [1, 17, 2048, 6001])
def test_what_is_no_distribution_is_0_and_its_node_padding(
    num_ids: int, dtype: torch.dtype, device: torch.device
) -> None:
    torch.manual_seed(num_ids)
    probs = torch.randn(3, 4, num_ids, dtype=dtype).softmax(-1)
    token_ids = torch.randint(num_ids, (3, 3))
    assert check(token_ids, probs, device) == []
    probs[0, 1, -1] += 2e-5
    probs[1, 0, -1] = NAN
    probs[1, 3] *= 1.0001
    probs[2, 2] = torch.inf
    assert check(token_ids, probs, device) == [[0, 1], [1, 0], [1, 3], [2, 2]]


def test_negative_numbers_count_as_0(device: torch.device) -> None:
    probs = torch.full((1, 2, 4), 0.25)
    probs[0, 0] = torch.tensor([0.5, 0.5, -0.1, 0.0])
    probs[0, 1, 2] = -0.25
    assert check(torch.tensor([[2]]), probs, device) == [[0, 1]]


def test_views_and_many_tiles(device: torch.device) -> None:
    torch.manual_seed(1)
    probs = torch.randn(2, 6, 300).softmax(-1)
    probs[1, 2, 7] = 0.5
    wide = torch.zeros(2, 8, 310)
    wide[:, 1:7, 5:305] = probs
    token_ids = torch.randint(300, (2, 9))[:, 2:7]
    found = check(token_ids, wide[:, 1:7, 5:305], device, config=LaunchConfig(2, num_warps=1))
    assert found == [[1, 2]]


def test_no_requests(device: torch.device) -> None:
    ids, own = sound_probs(
        torch.empty((0, 3), dtype=torch.int64, device=device), torch.empty((0, 4, 9), device=device), 1e-5
    )
    assert (ids.shape, own.shape) == ((0, 3), (0, 4, 9))


IDS, PROBS = torch.zeros((2, 3), dtype=torch.int64), torch.zeros(2, 4, 9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((IDS[0], PROBS), r"token_ids must be \[B, N\] and probs \[B, N \+ 1, V\], not int64 \[3\]"),
        ((IDS, PROBS[:, :3]), r"probs must be float32 or float64 \[2, 4, 9\], not float32 \[2, 3, 9\]"),
        ((IDS, PROBS.half()), r"probs must be float32 or float64 \[2, 4, 9\], not float16"),
        ((IDS.int(), PROBS), r"token_ids must be int64 \[2, 3\], not int32"),
        ((IDS.to("meta"), PROBS), "token_ids is on meta"),
    ],
)
def test_bad_arguments(given: tuple[torch.Tensor, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sound_probs(*given, 1e-5)


MUTANTS = {
    "takes any row": ("if not is_normal:", "if False:"),
    "keeps what is below 0": ("tl.where(probs < 0.0, 0.0, probs)", "probs"),
    "sums some tiles": ("range(0, num_tiles, BLOCK_TILES)", "range(0, 1, BLOCK_TILES)"),
    "looks before all tiles are there": ("num_arrived_ptr + program, num_tiles)", "num_arrived_ptr + program, 1)"),
    "leaves the token": ("tl.where(is_normal, token, -1)", "token"),
}  # fmt: skip


@pytest.mark.interpreter
@pytest.mark.parametrize("name", [None, *MUTANTS])
def test_a_wrong_kernel_fails(name: str | None, check_mutant) -> None:
    cpu = torch.device("cpu")

    def check_all() -> None:
        test_negative_numbers_count_as_0(cpu)
        test_what_is_no_distribution_is_0_and_its_node_padding(6001, torch.float32, cpu)
        test_views_and_many_tiles(cpu)

    check_mutant("sound_probs", None if name is None else MUTANTS[name], check_all)
