"""`kv_write` against plain Python: the reference everywhere, the kernel under the interpreter and on a GPU."""

import pytest
import torch
from kernelcheck import NAN

from specdec_kernels.triton.kv_write import kv_write
from specdec_kernels.triton.kv_write.kernel import heuristic
from specdec_kernels.triton.launch import LaunchConfig


def naive(key, value, key_pages, value_pages, slot_mapping) -> tuple[torch.Tensor, torch.Tensor]:
    """What the pages hold afterwards, one row at a time."""
    pages = key_pages.clone(), value_pages.clone()
    for row, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            page, offset = divmod(slot, key_pages.shape[1])
            for tensor, rows in zip(pages, (key, value), strict=True):
                tensor[page, offset] = rows[row]
    return pages


def check(key, value, key_pages, value_pages, slot_mapping, device, **options) -> None:
    """Run on `device` and compare with `naive`, slots that are not written included."""
    expected = naive(key, value, key_pages, value_pages, slot_mapping)
    inputs = [tensor.to(device) for tensor in (key, value, key_pages, value_pages, slot_mapping)]
    kv_write(*inputs, **options)
    for pages, wanted in zip(inputs[2:4], expected, strict=True):
        assert torch.equal(pages.cpu().view(torch.uint8), wanted.view(torch.uint8))  # NaN included


def pages_of(num_blocks, block_size, num_heads, dim, dtype=torch.float32) -> torch.Tensor:
    return torch.full((num_blocks, block_size, num_heads, dim), NAN, dtype=dtype)


@pytest.mark.parametrize(
    ("num_heads", "key_dim", "value_dim", "block_size"),
    [(1, 1, 1, 1), (2, 64, 64, 16), (3, 80, 80, 7), (1, 192, 128, 32), (5, 7, 130, 3)],
)
@pytest.mark.parametrize("num_rows", [1, 17])
@pytest.mark.sampled(5, slow=0)
def test_odd_sizes(num_rows, num_heads, key_dim, value_dim, block_size, device: torch.device) -> None:
    torch.manual_seed(num_rows)
    num_blocks = 40 // block_size + 1
    slots = torch.randperm(num_blocks * block_size)[:num_rows]
    slots[num_rows // 2 : num_rows // 2 + num_rows // 8] = -1
    check(
        torch.randn(num_rows, num_heads, key_dim),
        torch.randn(num_rows, num_heads, value_dim),
        pages_of(num_blocks, block_size, num_heads, key_dim),
        pages_of(num_blocks, block_size, num_heads, value_dim),
        slots,
        device,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_types(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(1)
    key, value = torch.randn(4, 2, 24).to(dtype), torch.randn(4, 2, 24).to(dtype)
    slots = torch.tensor([9, -1, 0, 5])
    check(key, value, pages_of(3, 4, 2, 24, dtype), pages_of(3, 4, 2, 24, dtype), slots, device)


@pytest.mark.parametrize("config", [LaunchConfig(1, 1), LaunchConfig(4, 4), LaunchConfig(8, 1)], ids=str)
def test_every_configuration(config: LaunchConfig, device: torch.device) -> None:
    torch.manual_seed(2)
    key, value = torch.randn(3, 5, 24), torch.randn(3, 5, 40)
    slots = torch.tensor([4, 0, 7])
    check(key, value, pages_of(2, 4, 5, 24), pages_of(2, 4, 5, 40), slots, device, config=config)


def test_views_of_one_projection_and_of_one_cache(device: torch.device) -> None:
    torch.manual_seed(3)
    projected = torch.randn(6, 3 * 2 * 16).to(device)
    _, key, value = (part.view(6, 2, 16) for part in projected.chunk(3, 1))
    cache = torch.full((4, 2, 4, 2, 16), NAN, device=device)
    slots = torch.tensor([3, 12, -1, 6, 15, 0], device=device)
    expected = naive(key, value, cache[:, 0], cache[:, 1], slots)
    assert not key.is_contiguous()
    assert not cache[:, 0].is_contiguous()
    kv_write(key, value, cache[:, 0], cache[:, 1], slots)
    assert torch.equal(cache.isnan(), torch.stack(expected, 1).isnan())
    assert torch.equal(cache.nan_to_num(), torch.stack(expected, 1).nan_to_num())


def test_only_padding_writes_nothing(device: torch.device) -> None:
    rows = torch.randn(3, 2, 8)
    check(rows, rows, pages_of(2, 4, 2, 8), pages_of(2, 4, 2, 8), torch.tensor([-1, -1, -1]), device)


def test_no_rows(device: torch.device) -> None:
    rows, slots = torch.empty(0, 2, 8), torch.empty(0, dtype=torch.int64)
    check(rows, rows, pages_of(2, 4, 2, 8), pages_of(2, 4, 2, 8), slots, device)


ROWS = torch.zeros(3, 2, 8)
PAGES = torch.zeros(2, 4, 2, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": ROWS[0]}, r"key must be float32 \[2, Hkv, D\], not float32 \[2, 8\]"),
        ({"key": ROWS.long()}, "key must be floating point"),
        ({"key": ROWS.transpose(1, 2).contiguous().transpose(1, 2)}, "key must have unit stride"),
        ({"value": ROWS[:2]}, r"value must be float32 \[3, 2, Dv\], not float32 \[2, 2, 8\]"),
        ({"value": ROWS.half()}, "value must be float32"),
        (
            {"key_pages": PAGES[..., :7]},
            r"key_pages must be float32 \[num_blocks, block_size, 2, 8\], not .*7\]",
        ),
        ({"value_pages": PAGES[:, :3]}, r"value_pages must be float32 \[2, 4, 2, 8\]"),
        ({"value_pages": PAGES.to("meta")}, "value_pages is on meta, the rest on cpu"),
        ({"slot_mapping": torch.zeros(3, dtype=torch.int32)}, r"slot_mapping must be contiguous int64 \[3\]"),
        ({"slot_mapping": torch.zeros(2, dtype=torch.int64)}, "slot_mapping must be"),
        ({"slot_mapping": torch.zeros(3, dtype=torch.int64, device="meta")}, "slot_mapping is on meta"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, torch.Tensor], message: str) -> None:
    arguments = {
        "key": ROWS,
        "value": ROWS,
        "key_pages": PAGES,
        "value_pages": PAGES,
        "slot_mapping": torch.arange(3),
    }
    with pytest.raises(ValueError, match=message):
        kv_write(**(arguments | changes))


def test_a_block_that_is_no_power_of_two_is_refused() -> None:
    with pytest.raises(ValueError, match="block=3"):
        LaunchConfig(3, 4)


@pytest.mark.parametrize(("num_heads", "dim"), [(1, 1), (8, 128), (128, 192)])
def test_a_program_copies_at_most_2048_elements(num_heads: int, dim: int) -> None:
    assert heuristic(num_heads, dim).block * dim <= 2048


MUTANTS = {
    "writes padding rows": ("if slot < 0:", "slot = tl.maximum(slot, 0)\n    if slot < 0:"),
    "forgets the page": ("page * key_page_stride + offset", "offset"),
    "takes the keys' strides for values": ("page * value_page_stride", "page * key_page_stride"),
    "writes the first heads twice": ("tl.program_id(1) * BLOCK_HEADS +", "0 *"),
    "writes beyond a head": ("dims < KEY_DIM", "dims < BLOCK_KEY"),
}


@pytest.mark.interpreter
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_kernel_fails(name: str, check_mutant) -> None:
    torch.manual_seed(4)
    key = torch.randn(5, 3, 5)[:4]  # a wrong kernel may read and write beyond a row, not beyond memory
    value, slots = torch.randn(4, 3, 8), torch.tensor([6, -1, 9, 14])

    def check_all() -> None:
        pages = pages_of(4, 4, 3, 5), pages_of(4, 4, 3, 8)
        check(key, value, *pages, slots, torch.device("cpu"), config=LaunchConfig(2, num_warps=1))

    check_mutant("kv_write", None, check_all)
    check_mutant("kv_write", MUTANTS[name], check_all)
