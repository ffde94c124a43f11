"""What `paged_attention` refuses, its launch configurations, and tree masks as bits."""

from typing import Any

import pytest
import torch

from specdec_kernels.triton.paged_attention import pack_tree_mask, paged_attention
from specdec_kernels.triton.paged_attention.config import (
    LaunchConfig,
    Problem,
    heuristic,
    heuristics,
    invariant,
)
from specdec_kernels.triton.paged_attention.tree import unpack_tree_mask

QUERY = torch.zeros(3, 4, 8)
PAGES = torch.zeros(2, 4, 2, 8)
IDS = torch.zeros(2, dtype=torch.int64)
MASK = torch.full((3, 1), -1)


def call(**changes: Any) -> torch.Tensor:
    arguments: dict[str, Any] = {
        "query": QUERY,
        "key_pages": PAGES,
        "value_pages": PAGES,
        "block_tables": torch.zeros((2, 2), dtype=torch.int64),
        "query_starts": torch.tensor([0, 1, 3]),
        "context_lens": torch.tensor([1, 2]),
        "scale": 1.0,
    }
    return paged_attention(**(arguments | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": QUERY[0]}, r"query must be float32, float16 or bfloat16 \[T, H, D\], not float32 \[4, 8\]"),
        ({"query": QUERY.double()}, "not float64"),
        ({"query": torch.zeros(3, 8, 4).transpose(1, 2)}, "query must have unit stride"),
        ({"query": torch.zeros(3, 3, 8)}, "query has H=3 heads, which is not a multiple of the Hkv=2"),
        ({"key_pages": PAGES.half()}, "key_pages must be float32"),
        ({"key_pages": PAGES[..., :7]}, r"key_pages must be float32 \[num_blocks, block_size, Hkv, 8\]"),
        ({"value_pages": PAGES[:1]}, r"value_pages must be float32 \[2, 4, 2, Dv\], not float32 \[1, 4, 2, 8\]"),
        ({"value_pages": PAGES.to("meta")}, "value_pages is on meta"),
        ({"block_tables": IDS}, r"block_tables must be int32 or int64 \[B, M\]"),
        ({"block_tables": IDS[:, None][:, :0]}, "with M > 0"),
        ({"block_tables": torch.zeros(2, 2)}, "block_tables must be contiguous int32 or int64"),
        ({"query_starts": IDS}, r"query_starts must be contiguous int32 or int64 \[3\], not int64 \[2\]"),
        ({"context_lens": IDS.float()}, r"context_lens must be contiguous int32 or int64 \[2\], not float32"),
        ({"context_lens": IDS.to("meta")}, "context_lens is on meta"),
        ({"window": 0}, "window=0 must be at least 1"),
        ({"softcap": 0.0}, "softcap=0.0 must be above 0"),
        ({"softcap": float("nan")}, "softcap=nan must be above 0"),
        ({"sinks": torch.zeros(2)}, r"sinks must be contiguous floating point \[4\] on cpu, not float32 \[2\]"),
        ({"tree_mask": MASK.int()}, r"tree_mask must be contiguous int64 \[3, 1\], not int32"),
        ({"tree_mask": MASK[:2]}, r"tree_mask must be contiguous int64 \[3, 1\]"),
        ({"tree_mask": MASK, "window": 3}, "positions are needed with both tree_mask and window"),
        ({"positions": torch.arange(3)}, "positions are read with tree_mask alone"),
        ({"tree_mask": MASK, "positions": torch.arange(2)}, "positions must be contiguous"),
        ({"out": torch.zeros(3, 4, 7)}, r"out must be float32 \[3, 4, 8\], not float32 \[3, 4, 7\]"),
        ({"config": LaunchConfig(16, 16, 4, num_splits=2), "batch_invariant": True}, "num_splits=2 shares, which is not"),
        ({"query": torch.zeros(3, 34, 8), "config": LaunchConfig(16, 16, 4)}, "block_rows=16 must be at least H / Hkv = 17"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(**changes)


def test_the_arguments_are_right_otherwise() -> None:
    assert call(positions=torch.arange(3), tree_mask=MASK, window=2).shape == (3, 4, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_rows": 8}, "block_rows=8"),
        ({"block_rows": 48}, "block_rows=48"),
        ({"block_tokens": 24}, "block_tokens=24"),
        ({"num_splits": 0}, "num_splits=0"),
        ({"split_size": 24}, "split_size=24 must be a multiple of block_tokens=16"),
        ({"split_size": 32, "num_splits": 2}, "num_splits=2 has no meaning"),
    ],
)
def test_wrong_configurations_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LaunchConfig(**({"block_rows": 16, "block_tokens": 16, "num_warps": 4} | options))


def problem(**changes: int) -> Problem:
    sizes = {
        "num_rows": 6,
        "num_requests": 1,
        "group": 4,
        "num_kv_heads": 8,
        "key_dim": 128,
        "value_dim": 128,
    }
    return Problem(**(sizes | {"itemsize": 2, "max_context_len": 32768} | changes))


def test_a_small_batch_is_split_and_a_large_one_is_not() -> None:
    assert heuristic(problem()).num_splits > 8
    assert heuristic(problem(num_rows=2048, num_requests=64)).num_splits == 1
    assert heuristic(problem(max_context_len=100)).num_splits == 1


@pytest.mark.parametrize("group", [1, 3, 7, 100])
@pytest.mark.parametrize("dims", [(64, 64), (192, 128), (576, 512)])
def test_every_configuration_holds_a_group(group: int, dims: tuple[int, int]) -> None:
    sizes = problem(group=group, key_dim=dims[0], value_dim=dims[1])
    for config in [heuristic(sizes), invariant(sizes), *heuristics(sizes)]:
        assert config.block_rows >= group


def test_the_invariant_configuration_looks_at_the_model_alone() -> None:
    sizes = [
        problem(num_rows=n, num_requests=b, max_context_len=m) for n, b, m in ((1, 1, 64), (900, 30, 10**5))
    ]
    assert invariant(sizes[0]) == invariant(sizes[1])
    assert invariant(sizes[0]).is_batch_invariant
    assert not heuristic(sizes[0]).is_batch_invariant or heuristic(sizes[0]).num_splits == 1
    assert [invariant(sizes[0]).shares(length) for length in (0, 1, 1024, 1025)] == [1, 1, 1, 2]


@pytest.mark.parametrize("width", [1, 63, 64, 65, 130])
def test_tree_masks_as_bits(width: int) -> None:
    torch.manual_seed(width)
    visible = torch.rand(5, width) < 0.5
    packed = pack_tree_mask(visible)
    for row in range(5):
        for column in range(packed.shape[1] * 64):
            bit = int(packed[row, column // 64]) >> (column % 64) & 1
            assert bit == (visible[row, column].item() if column < width else 1)
    assert torch.equal(unpack_tree_mask(packed, width), visible)
    assert unpack_tree_mask(packed, width + 200)[:, width:].all()


def test_only_masks_are_packed() -> None:
    with pytest.raises(ValueError, match=r"visible must be bool \[T, W\]"):
        pack_tree_mask(torch.zeros(3, 4))
