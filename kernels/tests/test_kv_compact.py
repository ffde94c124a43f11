"""`kv_compact` against plain Python: the reference everywhere, the kernel under the interpreter and on a GPU."""

from typing import Any

import pytest
import torch

from specdec_kernels.triton.kv_compact import kv_compact
from specdec_kernels.triton.kv_compact.config import LaunchConfig, candidates, heuristic


def naive(pages: torch.Tensor, sources: torch.Tensor, destinations: torch.Tensor) -> torch.Tensor:
    """What the pages hold afterwards, one row at a time, read from the pages as they were."""
    moved, size = pages.clone(), pages.shape[2]
    for source, destination in zip(sources.flatten().tolist(), destinations.flatten().tolist(), strict=True):
        if source >= 0 and destination >= 0:
            moved[:, destination // size, destination % size] = pages[:, source // size, source % size]
    return moved


def check(keys, values, sources, destinations, device: torch.device, **options: Any) -> None:
    """Run on `device` and compare all slots with `naive`."""
    expected = naive(keys, sources, destinations), naive(values, sources, destinations)
    inputs = [tensor.clone().to(device) for tensor in (keys, values, sources, destinations)]
    kv_compact(*inputs, **options)
    for pages, wanted in zip(inputs[:2], expected, strict=True):
        assert torch.equal(pages.cpu(), wanted)


def cache(layers=2, blocks=6, size=4, heads=2, dim=5, dtype=torch.float32) -> torch.Tensor:
    torch.manual_seed(layers + dim)
    return torch.randn(layers, blocks, size, heads, dim).to(dtype)


PATHS = {
    "to the left": ([3, 5, 6, 9], [1, 2, 3, 4]),
    "onto sources of later entries": ([1, 2, 3, 5], [0, 1, 2, 3]),
    "nothing to do": ([1, 2, 3], [1, 2, 3]),
    "to the right": ([0, 1, 2], [1, 2, 3]),
    "a swap": ([0, 7], [7, 0]),
    "a cycle across pages": ([2, 9, 21], [9, 21, 2]),
    "one row": ([23], [0]),
}


@pytest.mark.parametrize("name", PATHS)
def test_sources_and_destinations_overlap(name: str, device: torch.device) -> None:
    sources, destinations = (torch.tensor([slots]) for slots in PATHS[name])
    check(cache(), cache(dim=3), sources, destinations, device)


def test_a_path_in_blocks_that_are_out_of_order(device: torch.device) -> None:
    """Positions ascend, slots do not: a destination lies never behind its source along the request."""
    table = torch.tensor([5, 0, 3])
    positions = torch.tensor([[4, 6, 7, 9, 11], [2, 3, 4, 5, 6]])
    slots = table[positions // 4] * 4 + positions % 4
    check(cache(), cache(), slots[:1], slots[1:], device)


@pytest.mark.parametrize(
    ("layers", "size", "heads", "key_dim", "value_dim"),
    [(1, 1, 1, 1, 1), (3, 16, 3, 80, 80), (2, 7, 1, 192, 128), (5, 32, 5, 24, 40)],
)
@pytest.mark.parametrize(("num_requests", "path_len"), [(1, 1), (3, 5), (2, 9)])
def test_odd_sizes(
    layers, size, heads, key_dim, value_dim, num_requests, path_len, device: torch.device
) -> None:
    per_request = 20
    blocks = -(-num_requests * per_request // size)
    sources, destinations = torch.full((2, num_requests, path_len), -1)
    for b in range(num_requests):
        count = path_len - b
        slots = b * per_request + torch.randperm(per_request)
        sources[b, :count] = slots[:count].sort().values
        destinations[b, :count] = b * per_request + torch.arange(count)
    shape = {"layers": layers, "blocks": blocks, "size": size, "heads": heads}
    check(cache(**shape, dim=key_dim), cache(**shape, dim=value_dim), sources, destinations, device)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_types(dtype: torch.dtype, device: torch.device) -> None:
    check(cache(dtype=dtype), cache(dtype=dtype), torch.tensor([[6, 9]]), torch.tensor([[5, 6]]), device)


@pytest.mark.parametrize("config", candidates(9), ids=str)
def test_every_configuration(config: LaunchConfig, device: torch.device) -> None:
    sources, destinations = torch.tensor([[5, 9, 10]]), torch.tensor([[3, 4, 5]])
    check(cache(dim=150), cache(dim=70), sources, destinations, device, config=config)


def test_padding_moves_nothing(device: torch.device) -> None:
    sources = torch.tensor([[-1, 5, 6], [-1, -1, -1], [12, -1, 13]])
    destinations = torch.tensor([[0, -1, 4], [-1, -1, -1], [12, 13, 14]])
    check(cache(), cache(), sources, destinations, device)


def test_views_of_one_cache(device: torch.device) -> None:
    both = torch.randn(3, 2, 6, 4, 2, 5)
    sources, destinations = torch.tensor([[6, 9, 17]]), torch.tensor([[5, 6, 7]])
    expected = [naive(both[:, i], sources, destinations) for i in (0, 1)]
    moved = both.to(device)
    kv_compact(moved[:, 0], moved[:, 1], sources.to(device), destinations.to(device))
    assert torch.equal(moved.cpu(), torch.stack(expected, 1))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_nothing(shape: tuple[int, int], device: torch.device) -> None:
    slots = torch.zeros(shape, dtype=torch.int64)
    check(cache(), cache(), slots, slots, device)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_pages": cache()[0]}, r"key_pages must be float32 \[L, num_blocks, block_size, Hkv, D\]"),
        ({"key_pages": cache().long()}, "key_pages must be floating point"),
        ({"value_pages": cache(layers=1)}, r"value_pages must be float32 \[2, 6, 4, 2, Dv\]"),
        ({"value_pages": cache().half()}, "value_pages must be float32"),
        ({"value_pages": cache().to("meta")}, "value_pages is on meta"),
        ({"value_pages": cache().transpose(3, 4).contiguous().transpose(3, 4)}, "value_pages must have unit"),
        ({"src_slots": torch.tensor([1])}, r"src_slots must be int64 \[B, P\], not int64 \[1\]"),
        ({"src_slots": torch.zeros(1, 2)}, r"src_slots must be contiguous int64 \[1, 2\], not float32"),
        (
            {"dst_slots": torch.tensor([[1]])},
            r"dst_slots must be contiguous int64 \[1, 2\], not int64 \[1, 1\]",
        ),
        ({"dst_slots": torch.tensor([[1, 2]], dtype=torch.int32)}, "dst_slots must be contiguous int64"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, torch.Tensor], message: str) -> None:
    slots = torch.tensor([[1, 2]])
    arguments = {"key_pages": cache(), "value_pages": cache(), "src_slots": slots, "dst_slots": slots}
    with pytest.raises(ValueError, match=message):
        kv_compact(**(arguments | changes))


def test_configurations() -> None:
    with pytest.raises(ValueError, match="block_numbers=48"):
        LaunchConfig(48, 4)
    for length in (1, 9, 1000):
        assert heuristic(length).block_numbers in {config.block_numbers for config in candidates(length)}


MUTANTS = {
    "moves the first layer alone": ("layer = tl.program_id(1)", "layer = 0 * tl.program_id(1)"),
    "moves padding": ("is_move = (sources >= 0) &", "is_move ="),
    "forgets the page": ("slots // PAGE_SIZE * page_stride +", "0 * page_stride +"),
    "forgets the heads": ("numbers // DIM * head_stride", "0 * head_stride"),
    "moves the first request alone": ("request = tl.program_id(0)", "request = 0 * tl.program_id(0)"),
    "moves no values": ("tl.store(value_ptr + place, values, mask=value_mask)", "pass"),
    "writes before it reads": (
        "    values = tl.load(value_ptr",
        "    tl.store(value_ptr + place, 0.0 * tl.load(value_ptr + place, mask=value_mask, other=0.0), mask=value_mask)\n"
        "    values = tl.load(value_ptr",
    ),
}


@pytest.mark.interpreter
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_kernel_fails(name: str, check_mutant) -> None:
    sources = torch.tensor([[2, 5, -1], [17, 18, 22]])
    destinations = torch.tensor([[1, 2, 4], [16, 17, 18]])
    inputs = (cache(), cache(dim=3), sources, destinations, torch.device("cpu"))

    def check_all() -> None:
        check(*inputs)

    check_mutant("kv_compact", None, check_all)
    check_mutant("kv_compact", MUTANTS[name], check_all)
