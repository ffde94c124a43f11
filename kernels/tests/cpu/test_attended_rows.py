"""Attention over the first rows of a context and the newest ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specdec_kernels import AttendedRows
from specdec_kernels.cpu.compiled.team import make_team
from specdec_kernels.cpu.loops.attention import attend_alone, scratch_size
from specdec_kernels.cpu.loops.heads import head_functions
from specdec_kernels.cpu.loops.memory import floats

HEADS, KV_HEADS, DIM = 6, 3, 20
WINDOW, FIRST = 37, 4
CHAIN = np.empty((0, 0), np.bool_)
TEAM = make_team(2)
TREE = np.array([[1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 1, 0, 1, 1]], np.bool_)
"""Three rows behind two branches: one behind the first, two behind the second."""


def attended(query, keys, values, segments, visible) -> np.ndarray:
    """Return the compiled attention `[T, H, D]` of queries to cache rows."""
    out = np.full(query.shape, np.nan, np.float32)
    attend_alone(
        TEAM.ctypes.data, query.numpy(), keys.ctypes.data, values.ctypes.data, *keys.shape[:2], *head_functions(keys.dtype),
        segments, visible, WINDOW, FIRST, np.float32(0.3), np.float32(0.0), floats(scratch_size(segments, HEADS, KV_HEADS, 2)),
        out,
    )  # fmt: skip
    return out


def expected(query, keys, values, slot: int, seen: torch.Tensor) -> torch.Tensor:
    """Return attention `[H, D]` of one row to the positions that `seen` lists, in float64."""
    keys = keys[slot + seen].double().repeat_interleave(HEADS // KV_HEADS, 1)
    values = values[slot + seen].double().repeat_interleave(HEADS // KV_HEADS, 1)
    weights = torch.einsum("hd,nhd->hn", query.double(), keys).mul(0.3).softmax(1)
    return torch.einsum("hn,nhd->hd", weights, values)


@pytest.mark.parametrize("befores", [(150,), (36, 41, 300, 52, 90), (16,), (53, 1)])
@pytest.mark.parametrize("is_half", [False, True])
def test_rows_attend_to_the_first_and_the_newest(befores, is_half) -> None:
    torch.manual_seed(len(befores))
    count = 3
    starts = np.cumsum([0, *(before + count + 20 for before in befores)])
    keys, values = (torch.randn(int(starts[-1]), KV_HEADS, DIM) for _ in range(2))
    if is_half:
        keys, values = keys.bfloat16(), values.bfloat16()
    query = torch.randn(len(befores) * count, HEADS, DIM)
    segments = np.array(
        [[i * count, count, starts[i], before, -1] for i, before in enumerate(befores)], np.int64
    ).T.copy()
    stored = [(rows.view(torch.uint16) if is_half else rows).numpy() for rows in (keys, values)]
    out = attended(query, *stored, segments, CHAIN)
    for index, before in enumerate(befores):
        for row in range(count):
            place = torch.arange(before + row + 1)
            seen = place[(place < FIRST) | (place > before + row - WINDOW)]
            exact = expected(query[index * count + row], keys, values, int(starts[index]), seen)
            error = (torch.from_numpy(out[index * count + row]).double() - exact).abs().max()
            # Queries are rounded to bfloat16 too where the processor multiplies such pairs.
            assert error < (0.01 if is_half else 2e-6)


def test_a_path_of_a_tree_is_as_long_as_its_tokens() -> None:
    torch.manual_seed(0)
    before, count = 150, len(TREE)
    keys, values = (torch.randn(before + count + 20, KV_HEADS, DIM) for _ in range(2))
    query = torch.randn(count, HEADS, DIM)
    segments = np.array([[0], [count], [0], [before], [2]], np.int64)
    out = attended(query, keys.numpy(), values.numpy(), segments, TREE)
    for row, sees in enumerate(TREE):
        path = [*range(before - 2), *(before - 2 + np.flatnonzero(sees))]
        seen = torch.tensor(path[:FIRST] + path[-WINDOW:])
        exact = expected(query[row], keys, values, 0, seen)
        assert (torch.from_numpy(out[row]).double() - exact).abs().max() < 2e-6


def test_at_most_a_chunk_of_first_rows() -> None:
    with pytest.raises(ValueError, match="first=17: 0 to 16 rows"):
        AttendedRows(17, 64)
