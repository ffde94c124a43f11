"""Trees whose parents are on the device: their rows see what they see if the host has read the parents."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from speccheck.recorder import NUM_SLOTS, Rerun, StandInAttention

from specdec.interfaces import DeviceNodes
from specdec_kernels.cuda.graphs import PassGraphs
from specdec_kernels.cuda.graphs.pass_shape import shape_of
from specdec_kernels.cuda.graphs.static_pass import StaticPass
from specdec_kernels.cuda.paged_pass import paged_pass, pass_numbers
from specdec_kernels.triton.paged_attention.tree import unpack_tree_mask
from specdec_runtime.interfaces import HostRows, PackedBatch, Segment

CPU, CUDA, VOCAB = torch.device("cpu"), torch.device("cuda"), 50
CHUNKS, CACHED = [3, 1, 2, 1], [5, 40, 0, 9]


def passes(seed: int, counts: list[int], width: int) -> tuple[PackedBatch, PackedBatch]:
    """A pass of a prompt and three drafts of so many nodes: with trees that are not read, and with the same read."""
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.stack(
        (
            torch.randint(-2, VOCAB + 2, (3, width), generator=generator),
            torch.randint(-3, width + 2, (3, width), generator=generator),  # some of which follow their child
        )
    )
    drafts = [0, *counts]
    ids, positions, slots, row = [], [], [], 0
    segments: list[list[Segment]] = [[], []]
    for place, (chunk, cached, count) in enumerate(zip(CHUNKS, CACHED, drafts, strict=True)):
        offsets = np.arange(cached, cached + chunk + count)
        drafted = -1 - (place - 1) * width - np.arange(count)
        ids.append(np.concatenate((np.arange(7, 7 + chunk), drafted)))
        positions.append(offsets)
        slots.append(offsets + 128 * place)
        for both in segments:
            both.append(Segment(row, chunk + count, 128 * place, cached, num_drafted=count))
        row += chunk + count

    def made(kind: int, device: torch.device) -> PackedBatch:
        host = HostRows(*map(np.concatenate, (ids, positions, slots)), None)
        return PackedBatch.of_rows(host, segments[kind], device, DeviceNodes(nodes, counts, VOCAB))

    return made(0, CUDA), made(1, CPU)


@pytest.mark.parametrize(
    ("counts", "width", "words"), [([4, 1, 7], 7, 1), ([0, 3, 3], 4, 2), ([70, 9, 66], 70, 2)]
)
def test_rows_see_their_ancestors(counts, width, words) -> None:
    for seed in range(8):
        unread, read = passes(seed, counts, width)
        assert unread.has_unread_trees
        assert not read.has_unread_trees
        numbers = pass_numbers(unread.segments, NUM_SLOTS, {}, is_exact=False)
        static = StaticPass(shape_of(unread.num_rows, numbers, words), 512, CPU, None, 0, 8 * unread.num_rows)
        expected = paged_pass(read, NUM_SLOTS, {}, is_exact=False)
        for _ in range(2):
            static.send(unread, numbers, None)
            static.make_inputs()
        assert unread.has_unread_trees, "the host has not waited"
        assert torch.equal(static.batch.token_ids[: read.num_rows], read.token_ids)
        assert torch.equal(static.batch.positions[: read.num_rows], read.positions)
        assert torch.equal(static.rows.positions[: read.num_rows], read.positions)
        assert expected.tree_mask is not None
        for segment in read.segments:
            rows = slice(segment.row, segment.row + segment.num_rows)
            ours, theirs = (
                unpack_tree_mask(mask[rows], segment.num_rows)
                for mask in (static.rows.tree_mask, expected.tree_mask)
            )
            assert torch.equal(ours.tril(), theirs.tril())  # no row sees a later one, whatever its mask


def test_trees_that_are_read_fit_a_wider_mask() -> None:
    _, read = passes(0, [4, 1, 6], 6)
    numbers = pass_numbers(read.segments, NUM_SLOTS, {}, is_exact=False)
    static = StaticPass(shape_of(read.num_rows, numbers, 2), 512, CPU, None, 0, 8 * read.num_rows)
    expected = paged_pass(read, NUM_SLOTS, {}, is_exact=False).tree_mask
    assert expected is not None
    assert expected.shape[1] < 2
    for _ in range(2):
        static.send(read, numbers, None)
        static.make_inputs()
    for segment in read.segments:
        rows = slice(segment.row, segment.row + segment.num_rows)
        ours, theirs = (
            unpack_tree_mask(mask[rows], segment.num_rows) for mask in (static.rows.tree_mask, expected)
        )
        assert torch.equal(ours.tril(), theirs.tril())


def test_a_recording_serves_trees_and_chains() -> None:
    def run(batch: PackedBatch, features: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        return batch.token_ids[:, None] + 0.5, batch.positions[:, None] + 0.5

    made = PassGraphs(run, Rerun(), StandInAttention(), 512, mask_words=1)
    unread, read = passes(0, [4, 1, 6], 6)
    made.prepare(
        [shape_of(unread.num_rows, pass_numbers(unread.segments, NUM_SLOTS, {}, is_exact=False))], CPU, None
    )
    for batch in (unread, read):
        tokens, positions = made.forward(batch)
        assert torch.equal(tokens[:, 0], read.token_ids + 0.5)
        assert torch.equal(positions[:, 0], read.positions + 0.5)
    assert (made.num_recordings, made.num_replays) == (1, 2)
    assert unread.has_unread_trees


def test_trees_that_a_mask_has_no_room_for_are_read() -> None:
    unread, _ = passes(0, [70, 9, 66], 70)
    made = PassGraphs(
        lambda batch, _: (batch.token_ids[:, None],), Rerun(), StandInAttention(), 512, mask_words=1
    )
    assert made.forward(unread) is None
    assert not unread.has_unread_trees
