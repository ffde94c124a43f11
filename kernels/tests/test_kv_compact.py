"""`kv_compact` against plain Python: the reference everywhere, the kernel under the interpreter and on a GPU."""

from typing import Any

import pytest
import torch

from specdec_kernels.triton.kv_compact import kv_compact
from specdec_kernels.triton.launch import LaunchConfig


def naive(pages: torch.Tensor, first_slots: torch.Tensor, paths: torch.Tensor) -> torch.Tensor:
    """What the pages hold afterwards, one row at a time, read from the pages as they were."""
    moved, size = pages.clone(), pages.shape[2]
    for first, path in zip(first_slots.tolist(), paths.tolist(), strict=True):
        for step, node in enumerate(path):
            if node >= 0:
                source, destination = first + node, first + step
                moved[:, destination // size, destination % size] = pages[:, source // size, source % size]
    return moved


def check(keys, values, first_slots, paths, device: torch.device, **options: Any) -> None:
    """Run on `device` and compare all slots with `naive`."""
    expected = naive(keys, first_slots, paths), naive(values, first_slots, paths)
    inputs = [tensor.clone().to(device) for tensor in (keys, values, first_slots, paths)]
    kv_compact(*inputs, **options)
    for pages, wanted in zip(inputs[:2], expected, strict=True):
        assert torch.equal(pages.cpu(), wanted)


def cache(layers=2, blocks=6, size=4, heads=2, dim=5, dtype=torch.float32) -> torch.Tensor:
    torch.manual_seed(layers + dim)
    return torch.randn(layers, blocks, size, heads, dim).to(dtype)


PATHS = {
    "to the left": (1, [2, 4, 5, 8]),
    "onto sources of later entries": (0, [1, 2, 3, 5]),
    "nothing to do": (1, [0, 1, 2]),
    "all but the first": (6, [0, 2, 3]),
    "backwards": (2, [3, 2, 1, 0]),
    "across pages": (2, [7, 9, 19]),
    "one row": (0, [23]),
}


@pytest.mark.parametrize("name", PATHS)
def test_sources_and_destinations_overlap(name: str, device: torch.device) -> None:
    first, path = PATHS[name]
    check(cache(), cache(dim=3), torch.tensor([first]), torch.tensor([path]), device)


@pytest.mark.parametrize(
    ("layers", "size", "heads", "key_dim", "value_dim"),
    [(1, 1, 1, 1, 1), (3, 16, 3, 80, 80), (2, 7, 1, 192, 128), (5, 32, 5, 24, 40)],
)
@pytest.mark.parametrize(("num_requests", "path_len"), [(1, 1), (3, 5), (2, 9)])
@pytest.mark.sampled(5, slow=0)
def test_odd_sizes(
    layers, size, heads, key_dim, value_dim, num_requests, path_len, device: torch.device
) -> None:
    per_request = 20
    blocks = -(-num_requests * per_request // size)
    first_slots, paths = per_request * torch.arange(num_requests), torch.full((num_requests, path_len), -1)
    for b in range(num_requests):
        count = path_len - b
        paths[b, :count] = torch.randperm(per_request)[:count].sort().values
    shape = {"layers": layers, "blocks": blocks, "size": size, "heads": heads}
    check(cache(**shape, dim=key_dim), cache(**shape, dim=value_dim), first_slots, paths, device)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_types(dtype: torch.dtype, device: torch.device) -> None:
    check(cache(dtype=dtype), cache(dtype=dtype), torch.tensor([5]), torch.tensor([[1, 4]]), device)


@pytest.mark.parametrize("config", [LaunchConfig(32, 2), LaunchConfig(128, 4)], ids=str)
def test_every_configuration(config: LaunchConfig, device: torch.device) -> None:
    check(cache(dim=150), cache(dim=70), torch.tensor([3]), torch.tensor([[2, 6, 7]]), device, config=config)


def test_padding_moves_nothing(device: torch.device) -> None:
    paths = torch.tensor([[1, 4, -1], [-1, -1, -1], [2, -1, -1]])
    check(cache(), cache(), torch.tensor([3, 0, 12]), paths, device)


def test_the_first_columns_of_wider_paths(device: torch.device) -> None:
    keys, values, paths = (
        cache().to(device),
        cache(dim=3).to(device),
        torch.tensor([[1, 3, 9, 9], [0, 4, 9, 9]]),
    )
    expected = [naive(part.cpu(), torch.tensor([2, 12]), paths[:, :2]) for part in (keys, values)]
    kv_compact(keys, values, torch.tensor([2, 12]).to(device), paths.to(device)[:, :2])
    assert [
        torch.equal(part.cpu(), wanted) for part, wanted in zip((keys, values), expected, strict=True)
    ] == [
        True,
        True,
    ]


def test_views_of_one_cache(device: torch.device) -> None:
    both = torch.randn(3, 2, 6, 4, 2, 5)
    first_slots, paths = torch.tensor([5]), torch.tensor([[1, 4, 12]])
    expected = [naive(both[:, i], first_slots, paths) for i in (0, 1)]
    moved = both.to(device)
    kv_compact(moved[:, 0], moved[:, 1], first_slots.to(device), paths.to(device))
    assert torch.equal(moved.cpu(), torch.stack(expected, 1))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_nothing(shape: tuple[int, int], device: torch.device) -> None:
    paths = torch.zeros(shape, dtype=torch.int64)
    check(cache(), cache(), paths.sum(1), paths, device)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_pages": cache()[0]}, r"key_pages must be float32 \[L, num_blocks, block_size, Hkv, D\]"),
        ({"key_pages": cache().long()}, "key_pages must be floating point"),
        ({"value_pages": cache(layers=1)}, r"value_pages must be float32 \[2, 6, 4, 2, Dv\]"),
        ({"value_pages": cache().half()}, "value_pages must be float32"),
        ({"value_pages": cache().to("meta")}, "value_pages is on meta"),
        ({"value_pages": cache().transpose(3, 4).contiguous().transpose(3, 4)}, "value_pages must have unit"),
        ({"paths": torch.tensor([1])}, r"paths must be int64 \[B, P\], not int64 \[1\]"),
        ({"paths": torch.zeros(1, 2)}, r"paths must be int64 \[1, 2\], not float32"),
        (
            {"first_slots": torch.tensor([1, 2])},
            r"first_slots must be contiguous int64 \[1\], not int64 \[2\]",
        ),
        ({"first_slots": torch.tensor([1], dtype=torch.int32)}, "first_slots must be contiguous int64"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, torch.Tensor], message: str) -> None:
    given = {"first_slots": torch.tensor([1]), "paths": torch.tensor([[1, 2]])}
    arguments = {"key_pages": cache(), "value_pages": cache()} | given
    with pytest.raises(ValueError, match=message):
        kv_compact(**(arguments | changes))


def test_configurations() -> None:
    with pytest.raises(ValueError, match="block=48"):
        LaunchConfig(48, 4)


MUTANTS = {
    "moves the first layer alone": ("layer = tl.program_id(1)", "layer = 0 * tl.program_id(1)"),
    "moves padding": ("is_move = nodes >= 0", "is_move = nodes >= -1"),
    "forgets where a request begins": ("targets = first + entries", "targets = entries.to(tl.int64)"),
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
    paths = torch.tensor([[1, 4, -1], [1, 2, 6]])
    inputs = (cache(), cache(dim=3), torch.tensor([1, 16]), paths, torch.device("cpu"))

    def check_all() -> None:
        check(*inputs)

    check_mutant("kv_compact", None, check_all)
    check_mutant("kv_compact", MUTANTS[name], check_all)
