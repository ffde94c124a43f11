"""Masks of chains, windows and trees against brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_runtime.interfaces import Segment
from specdec_runtime.runner.masks import MaskMaker

MAX_CONTEXT = 90


def tree_segment(num_cached: int, chunk: int, parents: list[int]) -> Segment:
    """The segment of a chunk followed by a tree, written down from the definition."""
    size = chunk + len(parents)
    ancestors = [set(range(row + 1)) for row in range(chunk)]
    depths = list(range(chunk))
    for node, parent in enumerate(parents):
        above = chunk - 1 if parent < 0 else chunk + parent
        ancestors.append(ancestors[above] | {chunk + node})
        depths.append(depths[above] + 1)
    mask = torch.zeros((size, size), dtype=torch.bool)
    for row, seen in enumerate(ancestors):
        mask[row, sorted(seen)] = True
    return Segment(0, size, 0, num_cached, tree_mask=mask, depths=torch.tensor(depths))


def brute_force(segment: Segment, first_key: int, window: int | None) -> np.ndarray:
    rows = segment.num_rows
    out = np.zeros((rows, segment.kv_len - first_key), bool)
    for row in range(rows):
        at = segment.num_cached + (row if segment.depths is None else int(segment.depths[row]))
        for key in range(first_key, segment.kv_len):
            new = key - segment.num_cached
            if new < 0:
                position, is_ancestor = key, True
            elif segment.tree_mask is None or segment.depths is None:
                position, is_ancestor = key, new <= row
            else:
                position = segment.num_cached + int(segment.depths[new])
                is_ancestor = bool(segment.tree_mask[row, new])
            is_near = window is None or at - position < window
            out[row, key - first_key] = is_ancestor and position <= at and is_near
    return out


def check(segment: Segment, window: int | None) -> None:
    first_key = 0 if window is None else max(0, segment.num_cached - window + 1)
    maker = MaskMaker(MAX_CONTEXT, torch.float32, torch.device("cpu"))
    for _ in range(2):  # the second time from the template
        mask = maker.make(segment, first_key, window)
        assert mask.shape == (segment.num_rows, segment.kv_len - first_key)
        assert set(mask.unique().tolist()) <= {0.0, float("-inf")}
        assert np.array_equal(mask.numpy() == 0.0, brute_force(segment, first_key, window))


windows = st.sampled_from([None, 1, 2, 5, 16, 89, 90, 200])


@given(st.integers(0, MAX_CONTEXT - 1), st.integers(1, MAX_CONTEXT), windows)
@settings(max_examples=150, deadline=None)
def test_chains(num_cached, rows, window) -> None:
    check(Segment(0, min(rows, MAX_CONTEXT - num_cached), 0, num_cached), window)


@pytest.mark.parametrize("rows", [64, 65])
def test_chains_at_the_border_of_the_template(rows) -> None:
    check(Segment(0, rows, 0, 20), 7)
    check(Segment(0, rows, 0, 0), None)


@given(
    st.integers(0, 60),
    st.integers(1, 5),
    st.lists(st.integers(-1, 9), min_size=1, max_size=10),
    windows,
)
@settings(max_examples=150, deadline=None)
def test_trees(num_cached, chunk, links, window) -> None:
    parents = [min(parent, node - 1) for node, parent in enumerate(links)]
    check(tree_segment(num_cached, chunk, parents), window)


@given(
    st.integers(0, 60),
    st.integers(0, 3),
    st.lists(st.integers(-1, 9), min_size=1, max_size=10),
    st.integers(0, 9),
    windows,
)
@settings(max_examples=150, deadline=None)
def test_branches_in_the_cache(num_cached, chunk, links, num_branched, window) -> None:
    """The rows of a tree that come in two passes see what they see when all come in one."""
    parents = [min(parent, node - 1) for node, parent in enumerate(links)]
    whole = tree_segment(num_cached, 1 + chunk, parents)
    assert whole.tree_mask is not None
    assert whole.depths is not None
    count = min(num_branched, whole.num_rows - 1)
    rest = Segment(
        0,
        whole.num_rows - count,
        0,
        num_cached + count,
        whole.tree_mask[count:],
        whole.depths[count:],
        count,
    )
    first_key = 0 if window is None else max(0, num_cached - window + 1)
    mask = MaskMaker(MAX_CONTEXT, torch.float32, torch.device("cpu")).make(rest, first_key, window)
    assert np.array_equal(mask.numpy() == 0.0, brute_force(whole, first_key, window)[count:])


def test_one_maker_serves_several_windows() -> None:
    maker = MaskMaker(MAX_CONTEXT, torch.float32, torch.device("cpu"))
    segment = Segment(0, 4, 0, 30)
    for window in (None, 3, 10, None, 3):
        first_key = 0 if window is None else max(0, 30 - window + 1)
        got = maker.make(segment, first_key, window).numpy() == 0.0
        assert np.array_equal(got, brute_force(segment, first_key, window))


@pytest.mark.parametrize("num_rows", [1, 4])
def test_masks_on_devices_begin_at_the_beginning_of_their_memory(num_rows: int) -> None:
    """Memory of its own is aligned, whatever the number of cached tokens; kernels on GPUs refuse other pointers."""
    maker = MaskMaker(MAX_CONTEXT, torch.float16, torch.device("meta"))
    for num_cached in range(20):
        assert maker.make(Segment(0, num_rows, 0, num_cached), 0, None).storage_offset() == 0
