"""However attention divides its work among threads, a row's result has the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from specdec_kernels.cpu.compiled.team import make_team
from specdec_kernels.cpu.compiled.threads import is_available
from specdec_kernels.cpu.loops.attention import NO_WINDOW, attend_alone, scratch_size
from specdec_kernels.cpu.loops.heads import head_functions
from specdec_kernels.cpu.loops.memory import floats

assert is_available()
HEADS, KV_HEADS, DIM = 6, 3, 64
CHAIN = np.empty((0, 0), np.bool_)
TEAM = make_team(2)


def attended(query, cached, segments, num_scores: int) -> np.ndarray:
    """Return the attention of queries with memory for that many scores; 0 makes each head one thread's work."""
    out = np.full(query.shape, np.nan, np.float32)
    keys, values = cached
    attend_alone(
        TEAM.ctypes.data, query, keys.ctypes.data, values.ctypes.data, *keys.shape[:2], *head_functions(keys.dtype), segments,
        CHAIN, NO_WINDOW, 0, np.float32(0.3), np.float32(0.0), floats(num_scores), out,
    )  # fmt: skip
    return out


def test_memory_is_asked_for_only_where_threads_would_idle() -> None:
    one, two = (np.array([[i, 1, 0, 99, -1] for i in range(count)]).T.copy() for count in (1, 2))
    assert scratch_size(one, HEADS, KV_HEADS, 3) == scratch_size(two, HEADS, KV_HEADS, 3) == 0
    assert scratch_size(one, HEADS, KV_HEADS, 2) == HEADS * 112  # 100 keys in whole chunks
    # As many heads for each thread, but of requests that may be of different lengths.
    assert scratch_size(two, HEADS, KV_HEADS, 2) == 2 * HEADS * 112
    assert scratch_size(one, HEADS, 9, 2) == 0


@pytest.mark.parametrize("befores", [(3,), (40,), (500,), (70, 300)])
@pytest.mark.parametrize("is_half", [False, True])
def test_ways_of_dividing_the_work_have_equal_bits(befores, is_half) -> None:
    rng = np.random.default_rng(len(befores))
    cached = [rng.normal(size=(1000, KV_HEADS, DIM)).astype(np.float32) for _ in range(2)]
    if is_half:
        cached = [(rows.view(np.uint32) >> 16).astype(np.uint16) for rows in cached]
    count = 3
    query = rng.normal(size=(count * len(befores), HEADS, DIM)).astype(np.float32)
    segments = np.array(
        [[i * count, count, 510 * i, before, -1] for i, before in enumerate(befores)], np.int64
    ).T.copy()
    whole = attended(query, cached, segments, 2**20)
    assert np.isfinite(whole).all()
    np.testing.assert_array_equal(attended(query, cached, segments, 0), whole)
    for index, before in enumerate(befores):  # row by row, of which the shortest are one thread's work
        for row in range(count):
            place = index * count + row
            single = np.array([[0], [1], [510 * index], [before + row], [-1]])
            for num_scores in (0, 2**20):
                alone = attended(query[place : place + 1], cached, single, num_scores)
                np.testing.assert_array_equal(alone[0], whole[place])
