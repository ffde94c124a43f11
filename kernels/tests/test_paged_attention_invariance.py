"""With `batch_invariant`, a row of `paged_attention` comes out the same, bit for bit, in whatever company."""

from typing import Any

import numpy as np
import pytest
import torch

from specdec_kernels.triton.paged_attention import pack_tree_mask, paged_attention
from specdec_kernels.triton.paged_attention.config import LaunchConfig

HEADS, KV_HEADS, KEY_DIM, VALUE_DIM = 6, 2, 24, 40
BLOCK_SIZE, NUM_BLOCKS, NUM_REQUESTS = 8, 12, 4
CONFIGS = {
    "one share": LaunchConfig(32, 16, 4),
    "shares of 32": LaunchConfig(32, 16, 4, split_size=32),
    "shares of 16": LaunchConfig(32, 16, 4, split_size=16),
}
Rows = dict[tuple[int, int], torch.Tensor]


def run(
    pieces: list[tuple[int, int, int]], device: torch.device, spare_blocks: int = 0, **options: Any
) -> Rows:
    """Attend from positions `first` to `last` of requests, `(request, first, last)` each, over one fixed cache.

    Returns:
        `[H, Dv]` of each request and position.
    """
    draw = torch.Generator().manual_seed(0)
    length = BLOCK_SIZE * NUM_BLOCKS
    queries = torch.randn(NUM_REQUESTS, length, HEADS, KEY_DIM, generator=draw)
    pages = (NUM_REQUESTS * NUM_BLOCKS, BLOCK_SIZE, KV_HEADS)
    keys = torch.randn(*pages, KEY_DIM, generator=draw)
    values = torch.randn(*pages, VALUE_DIM, generator=draw)
    tables = torch.randperm(pages[0], generator=draw).view(NUM_REQUESTS, NUM_BLOCKS)
    tables = torch.nn.functional.pad(tables[[request for request, _, _ in pieces]], (0, spare_blocks))
    where = [(request, p) for request, first, last in pieces for p in range(first, last + 1)]
    query = torch.stack([queries[request, p] for request, p in where])
    starts = torch.tensor([0, *np.cumsum([last - first + 1 for _, first, last in pieces])])
    lengths = torch.tensor([last + 1 for _, _, last in pieces])
    inputs = [tensor.to(device) for tensor in (query, keys, values, tables, starts, lengths)]
    sinks = torch.linspace(-2, 2, HEADS, device=device)
    out = paged_attention(*inputs, scale=0.3, sinks=sinks, batch_invariant=True, **options)
    return dict(zip(where, out, strict=True))


def check(device: torch.device, **options: Any) -> None:
    """Rows alone, with what follows them, and with what goes before them, are those of the batch."""
    batch = run([(0, 47, 49), (1, 73, 81), (2, 17, 17), (3, 0, 12)], device, **options)
    alone = [
        run([(request, p, p)], device, **options)
        for request, p in ((0, 49), (1, 73), (1, 80), (2, 17), (3, 12))
    ]
    verified = run([(1, 73, 77)], device, spare_blocks=9, **options)
    chunk = run([(3, 0, 2), (1, 60, 76)], device, **options)
    for rows in (*alone, verified, chunk):
        shared = rows.keys() & batch.keys()
        assert shared
        for place in shared:
            assert torch.equal(rows[place], batch[place])


@pytest.mark.parametrize(
    ("name", "window"), [("one share", 11), ("shares of 32", None), ("shares of 16", 11)]
)
def test_a_row_does_not_depend_on_its_company(name: str, window, kernel_device: torch.device) -> None:
    check(kernel_device, config=CONFIGS[name], window=window, softcap=20.0)


def test_nor_on_whether_the_context_is_split(kernel_device: torch.device) -> None:
    """A row that lies within one share, with a bound on the context that needs one and one that needs three."""
    config, piece = CONFIGS["shares of 32"], [(1, 20, 24)]
    short = run(piece, kernel_device, config=config, max_context_len=32)
    long = run(piece, kernel_device, config=config, max_context_len=96)
    assert all(torch.equal(short[place], long[place]) for place in short)


@pytest.mark.parametrize("window", [None, 11])
def test_the_first_path_of_a_tree_equals_a_chain(window, kernel_device: torch.device) -> None:
    parents = [-1, 0, 1, 2, 0, 4, 4]
    visible = torch.zeros(7, 7, dtype=torch.bool)
    for row, parent in enumerate(parents):
        visible[row] = visible[parent] if row else False
        visible[row, row] = True
    depths = visible.sum(1) - 1
    options = {"config": CONFIGS["shares of 32"], "window": window}
    tree = {
        "tree_mask": pack_tree_mask(visible).to(kernel_device),
        "positions": (60 + depths).to(kernel_device),
    }
    in_tree = run([(1, 60, 66)], kernel_device, **options, **tree)
    chain = run([(1, 60, 63)], kernel_device, **options)
    assert all(torch.equal(in_tree[place], chain[place]) for place in chain)
    assert not torch.equal(in_tree[1, 64], run([(1, 64, 64)], kernel_device, **options)[1, 64])


def test_shares_that_follow_the_context_fail(
    kernel_device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LaunchConfig, "is_batch_invariant", True)
    with pytest.raises(AssertionError):
        check(kernel_device, config=LaunchConfig(32, 16, 4, num_splits=5))
