"""The attention backend against naive float64 attention: ragged batches, windows, trees, soft caps, sinks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_kernels.cpu.loops.segments import MAX_ROWS, is_short
from specdec_runtime.interfaces import KVCache, LayerShape, PackedBatch, Segment
from specdec_runtime.runner.sdpa import SdpaAttention

MAX_CONTEXT = 96
LAYER = 1


def with_parents(segment: Segment, parents: list[int]) -> Segment:
    """Make the last rows of a segment a tree."""
    chunk = segment.num_rows - len(parents)
    mask = torch.tril(torch.ones((segment.num_rows, segment.num_rows), dtype=torch.bool))
    depths = list(range(chunk))
    for node, parent in enumerate(parents):
        above = chunk - 1 if parent < 0 else chunk + parent
        mask[chunk + node] = mask[above]
        mask[chunk + node, chunk + node] = True
        depths.append(depths[above] + 1)
    segment.tree_mask, segment.depths = mask, torch.tensor(depths)
    return segment


def naive(segment, query, keys, values, scaling, window, softcap, sinks) -> torch.Tensor:
    """One request, row by row; `keys` and `values` are its whole context."""
    out = torch.zeros(query.shape[0], query.shape[1], values.shape[2], dtype=torch.float64)
    group = query.shape[1] // keys.shape[1]
    for row in range(query.shape[0]):
        at = segment.num_cached + (row if segment.depths is None else int(segment.depths[row]))
        for head in range(query.shape[1]):
            scores, picked = [], []
            for key in range(segment.kv_len):
                new = key - segment.num_cached
                position = key
                if new >= 0 and segment.tree_mask is not None:
                    position = segment.num_cached + int(segment.depths[new])
                    if not segment.tree_mask[row, new]:
                        continue
                if position > at or (window is not None and position <= at - window):
                    continue
                score = float(query[row, head].double() @ keys[key, head // group].double()) * scaling
                scores.append(score if softcap is None else softcap * math.tanh(score / softcap))
                picked.append(values[key, head // group].double())
            if sinks is not None:
                scores.append(float(sinks[head]))
                picked.append(torch.zeros(values.shape[2], dtype=torch.float64))
            weights = torch.softmax(torch.tensor(scores, dtype=torch.float64), 0)
            out[row, head] = (weights[:, None] * torch.stack(picked)).sum(0)
    return out


def run(shapes, *, heads=4, kv_heads=2, dim=6, value_dim=5, window=None, softcap=None, has_sinks=False, seed=0,
        dtype=torch.float32) -> None:  # fmt: skip
    """Attend to a batch of (cached rows, chunk rows, tree parents) and compare; unowned rows hold NaN."""
    torch.manual_seed(seed)
    segments, row, slot = [], 0, 3
    for cached, chunk, parents in shapes:
        segment = Segment(row, chunk + len(parents), slot, cached)
        segments.append(with_parents(segment, parents) if parents else segment)
        row += segment.num_rows
        slot += segment.kv_len + 2
    cache = KVCache(slot + 5, torch.device("cpu"))
    cache.allocate(LAYER, LayerShape(kv_heads, dim, value_dim, dtype))
    cache.keys[LAYER].fill_(float("nan"))
    cache.values[LAYER].fill_(float("nan"))
    for segment in segments:
        end = segment.first_slot + segment.num_cached
        cache.keys[LAYER][segment.first_slot : end] = torch.randn(segment.num_cached, kv_heads, dim).to(dtype)
        cache.values[LAYER][segment.first_slot : end] = torch.randn(
            segment.num_cached, kv_heads, value_dim
        ).to(dtype)
    query = 2 * torch.randn(row, heads, dim).to(dtype)
    key, value = torch.randn(row, kv_heads, dim).to(dtype), torch.randn(row, kv_heads, value_dim).to(dtype)
    slots = torch.cat([torch.arange(s.first_slot + s.num_cached, s.first_slot + s.kv_len) for s in segments])
    batch = PackedBatch(
        token_ids=torch.zeros(row, dtype=torch.int64),
        positions=torch.zeros(row, dtype=torch.int64),
        segments=segments,
        slots=None if len(segments) == 1 else slots,
        logits_rows=None,
    )
    sinks = torch.randn(heads) if has_sinks else None
    got = SdpaAttention(cache, MAX_CONTEXT).attend(
        LAYER, batch, query, key, value, scaling=0.4, window=window, softcap=softcap, sinks=sinks
    )
    assert got.shape == (row, heads, value_dim)
    for segment in segments:
        rows = slice(segment.row, segment.row + segment.num_rows)
        context = slice(segment.first_slot, segment.first_slot + segment.kv_len)
        new = slice(segment.first_slot + segment.num_cached, segment.first_slot + segment.kv_len)
        assert torch.equal(cache.keys[LAYER][new], key[rows])
        assert torch.equal(cache.values[LAYER][new], value[rows])
        want = naive(
            segment,
            query[rows],
            cache.keys[LAYER][context],
            cache.values[LAYER][context],
            0.4,
            window,
            softcap,
            sinks,
        )
        tolerance = 2e-6 if dtype == torch.float32 else 1e-12
        assert torch.allclose(got[rows].double(), want, atol=tolerance, rtol=1e-5)
    owned = torch.zeros(cache.num_slots, dtype=torch.bool)
    for segment in segments:
        owned[segment.first_slot : segment.first_slot + segment.kv_len] = True
    assert bool(cache.keys[LAYER][~owned].isnan().all())  # nothing was written anywhere else


TREE = [-1, 0, 0, -1, 2, 3]
BATCHES = {
    "one row": [(9, 1, [])],
    "fresh prompt": [(0, 13, [])],
    "chunk": [(17, 6, [])],
    "verification": [(20, 5, [])],
    "tree": [(11, 1, TREE)],
    "chunk and tree": [(11, 4, TREE)],
    "ragged": [(0, 7, []), (30, 1, []), (12, 5, []), (40, 9, [])],
    "ragged with trees": [(0, 7, []), (30, 1, TREE), (12, 5, []), (25, 3, [-1, 0])],
    "long chunk in a batch": [(5, MAX_ROWS + 3, []), (9, 2, [])],
}


@pytest.mark.parametrize("window", [None, 1, 4, 16])
@pytest.mark.parametrize("shapes", BATCHES.values(), ids=BATCHES)
def test_windows_and_trees(shapes, window) -> None:
    run(shapes, window=window)


@pytest.mark.parametrize(("softcap", "has_sinks"), [(1.5, False), (None, True), (0.7, True)])
@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("shapes", BATCHES.values(), ids=BATCHES)
def test_soft_caps_and_sinks(shapes, window, softcap, has_sinks) -> None:
    run(shapes, window=window, softcap=softcap, has_sinks=has_sinks)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "value_dim"), [(1, 1, 1, 1), (6, 2, 7, 3), (3, 3, 16, 16)]
)
def test_odd_sizes(heads, kv_heads, dim, value_dim) -> None:
    for shapes in ([(4, 3, [])], BATCHES["ragged with trees"]):
        run(shapes, heads=heads, kv_heads=kv_heads, dim=dim, value_dim=value_dim)


def test_double_precision() -> None:
    run(BATCHES["ragged with trees"], dtype=torch.float64)
    run(BATCHES["ragged"], dtype=torch.float64, window=5)


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 8), st.lists(st.integers(-1, 6), max_size=6)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([None, 3, 10]),
    st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_any_batch(shapes, window, seed) -> None:
    trimmed = [(c, n, [min(p, j - 1) for j, p in enumerate(parents)]) for c, n, parents in shapes]
    run(trimmed, window=window, seed=seed)


def test_long_pieces_are_left_to_matrix_products() -> None:
    def batch(rows: int) -> PackedBatch:
        ids = torch.zeros(rows, dtype=torch.int64)
        return PackedBatch(ids, ids, [Segment(0, rows, 0, 0)], None, None)

    assert is_short(batch(MAX_ROWS))
    assert not is_short(batch(MAX_ROWS + 1))


def test_scores_far_apart_stay_finite() -> None:
    cache = KVCache(8, torch.device("cpu"))
    cache.allocate(0, LayerShape(1, 2, 2, torch.float32))
    for shapes in ([(0, 3)], [(0, 3), (0, 3)]):
        segments = [Segment(3 * i, n, 4 * i, c) for i, (c, n) in enumerate(shapes)]
        rows = 3 * len(shapes)
        query = torch.tensor([[[1000.0, 0.0]], [[-1000.0, 0.0]], [[0.0, 0.0]]]).repeat(len(shapes), 1, 1)
        key = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[-1.0, 0.0]]]).repeat(len(shapes), 1, 1)
        value = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[5.0, 5.0]]]).repeat(len(shapes), 1, 1)
        slots = torch.tensor([4 * i + j for i in range(len(shapes)) for j in range(3)])
        ids = torch.zeros(rows, dtype=torch.int64)
        batch = PackedBatch(ids, ids, segments, None if len(shapes) == 1 else slots, None)
        got = SdpaAttention(cache, MAX_CONTEXT).attend(0, batch, query, key, value, scaling=1.0)
        expected = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
        for i in range(len(shapes)):
            assert np.allclose(got[3 * i : 3 * i + 3, 0].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_alone_does_not_see_the_branches_beside_it(dtype, window) -> None:
    torch.manual_seed(4)
    parents, cached = [-1, -1, 1, 2], 5
    query, key, value = (torch.randn(1 + len(parents), 2, 4).to(dtype) for _ in range(3))
    whole = with_parents(Segment(0, 5, 0, cached), parents)
    assert whole.tree_mask is not None
    assert whole.depths is not None
    outputs = []
    for sizes in ((5,), (1, 2, 1, 1)):
        cache = KVCache(cached + 5, torch.device("cpu"))
        cache.allocate(LAYER, LayerShape(2, 4, 4, dtype))
        backend = SdpaAttention(cache, MAX_CONTEXT)
        old = torch.arange(cached * 8).reshape(cached, 2, 4).to(dtype) / 40
        cache.write(LAYER, old, old, slice(0, cached))
        parts, start = [], 0
        for size in sizes:
            end = start + size
            mask = whole.tree_mask[start:end, :end]
            segment = Segment(0, size, 0, cached + start, mask, whole.depths[start:end], start)
            positions = cached + whole.depths[start:end]
            batch = PackedBatch(torch.zeros(size, dtype=torch.int64), positions, [segment], None, None)
            rows = (tensor[start:end] for tensor in (query, key, value))
            parts.append(
                backend.attend(LAYER, batch, *rows, scaling=0.5, window=window, softcap=None, sinks=None)
            )
            start = end
        outputs.append(torch.cat(parts))
    torch.testing.assert_close(outputs[1], outputs[0])
