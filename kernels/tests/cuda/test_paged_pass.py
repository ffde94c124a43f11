"""The form of a pass that kernels read: where each row's context is, also if its first rows are shared."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specdec.engine import SlotPool
from specdec_kernels.cuda.attention import PagedAttention
from specdec_kernels.cuda.paged_pass import PagedPass, paged_pass, pass_numbers
from specdec_kernels.cuda.shared_slots import SharedSlots
from specdec_runtime.interfaces import KVCache, LayerShape, PackedBatch, Segment

NUM_SLOTS = 1024
SHARED = {-64: (512, 96), 160: (512, 64)}
"""Two requests that share rows from slot 512 on: 96 of the first, whose run begins at slot 32, and 64 of the second."""


def tree(segment: Segment, num_branched: int = 0) -> Segment:
    """A last row with two children, and behind branches in the cache that the rows do not all see."""
    count = segment.num_rows
    mask = torch.tril(torch.ones(count, num_branched + count, dtype=torch.bool), num_branched)
    mask[:, 1:num_branched] = False
    mask[-1, num_branched + 1 : num_branched + count - 1] = False
    return replace(segment, tree_mask=mask, depths=mask.sum(1) - 1, num_branched=num_branched)


CHAINS = [Segment(0, 5, -64, 97), Segment(5, 1, 320, 40), Segment(6, 2, 160, 64)]
PASSES = {
    "chains": (CHAINS, False),
    "a tree": ([tree(CHAINS[0]), *CHAINS[1:]], False),
    "a tree by paths": ([tree(CHAINS[0]), *CHAINS[1:]], True),
    "a tree with branches": ([replace(CHAINS[1], row=0), tree(Segment(1, 3, -64, 101), 4)], False),
}


def packed(segments: list[Segment]) -> PackedBatch:
    num_rows = segments[-1].row + segments[-1].num_rows
    rows = torch.zeros(num_rows, dtype=torch.int64)
    slots = torch.cat([torch.arange(s.num_cached, s.kv_len) + s.first_slot for s in segments])
    return PackedBatch(rows, rows, segments, slots, None)


def contexts(rows: PagedPass) -> list[list[int]]:
    """The slots that the last row of each request reads, in order."""
    size, columns = rows.page_size, torch.arange(rows.max_context_len)
    slots = rows.block_tables[:, columns // size] * size + columns % size
    return [row[:length].tolist() for row, length in zip(slots, rows.context_lens.tolist(), strict=True)]


@pytest.mark.parametrize("name", PASSES)
def test_contexts_begin_with_shared_rows(name: str) -> None:
    segments, is_exact = PASSES[name]
    alone = contexts(paged_pass(packed(segments), NUM_SLOTS, {}, is_exact=is_exact))
    got = contexts(paged_pass(packed(segments), NUM_SLOTS, SHARED, is_exact=is_exact))
    owner = {
        segment.first_slot + position: (segment.first_slot, position)
        for segment in segments
        for position in range(segment.kv_len)
    }
    for ours, own in zip(got, alone, strict=True):
        for slot, at_own in zip(ours, own, strict=True):
            first, position = owner[at_own]
            place, count = SHARED.get(first, (0, 0))
            assert slot == (place + position if position < count else at_own)
    assert any(min(row) >= 0 and 512 in row for row in got)


def test_pages_are_as_large_as_what_is_shared_allows() -> None:
    pages = [(16, {}), (16, SHARED), (8, {-64: (520, 96)}), (4, {-64: (512, 100)})]
    for size, shared in pages:
        assert pass_numbers(CHAINS, NUM_SLOTS, shared, is_exact=False).page_size == size


@pytest.mark.parametrize(
    ("dtype", "device", "pool"),
    [(torch.float32, "cuda", SharedSlots), (torch.bfloat16, "cuda", SharedSlots), (torch.float64, "cuda", None),
     (torch.float32, "cpu", None)],
)  # fmt: skip
def test_requests_share_where_a_device_reads_tables(dtype, device: str, pool: type[SlotPool] | None) -> None:
    cache = KVCache(16, torch.device(device))
    attention = PagedAttention(cache, 16)
    cache.shapes[0] = LayerShape(1, 1, 1, dtype)
    assert attention.slot_pool is pool
