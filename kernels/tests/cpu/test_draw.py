"""Draws from logits against the race over all weights, in any number of parts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.jobs import call_of
from specdec_kernels.cpu.compiled.math import exp
from specdec_kernels.cpu.compiled.team import make_team, run_with_team
from specdec_kernels.cpu.rows.draw import can_draw, draw
from specdec_kernels.cpu.rows.highest import highest_place
from specdec_kernels.cpu.rows.in_team import draw_in_team, highest_in_team
from specdec_kernels.cpu.rows.noise import philox_block, race

INF = math.inf
SIZES = [1, 2, 3, 63, 64, 65, 130, 1000, 4096]
TEMPERATURES = [1e-30, 1e-3, 0.3, 0.8, 1.0, 2.0, 50.0, 1e30]


@njit(nogil=True, error_model="numpy")
def weigh(logits, scale, weights):
    """Write the weight of each id, as one pass over a row does."""
    highest = logits.max()
    for j in range(logits.shape[0]):
        weights[j] = exp((logits[j] - highest) * scale)


@njit(nogil=True)
def _choose(team, logits, ids, scale, seed, position, sample, word, out):
    out[0] = highest_in_team(team, logits)
    out[1] = draw_in_team(team, logits, ids, max(0, out[0]), scale, seed, position, sample, word)


@njit(nogil=True)
def choose(team, logits, ids, scale, seed, position, sample, word, out):
    run_with_team(team, call_of(_choose, (team, logits, ids, scale, seed, position, sample, word, out)))


def rows_of(size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return random rows: wide and narrow, quantised so that ids tie, cut to few ids, equal, and far below one id."""
    wide = rng.standard_normal(size) * 4
    cut = np.where(rng.random(size) < 0.1, wide, -INF)
    cut[rng.integers(size)] = 1.0
    far = np.full(size, -1e30)
    far[rng.integers(size)] = 3e38
    rows = [wide, wide / 100, np.round(wide), cut, np.zeros(size), far, -np.arange(size) * 20.0, wide + 1e4]
    return [np.asarray(row, np.float32) for row in rows]


def raced(logits: np.ndarray, ids: np.ndarray, scale: np.float32, *keys: int) -> int:
    """Return the id that the race over all weights finds."""
    weights = np.empty_like(logits)
    weigh(logits, scale, weights)
    if not len(ids):
        return race(weights, *keys)
    wide = np.zeros(ids.max() + 1, logits.dtype)
    wide[ids] = weights
    return race(wide, *keys)


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
@pytest.mark.parametrize("size", SIZES)
def test_it_draws_what_the_race_does(size, num_threads) -> None:
    rng = np.random.default_rng(size)
    every, some = np.empty(0, np.int64), np.sort(rng.permutation(3 * size + 5)[:size])
    some[size // 2 :] = rng.permutation(some[size // 2 :])  # ids beside the listed ones are in any order
    team, out = make_team(num_threads), np.empty(2, np.int64)
    for logits in rows_of(size, rng):
        best = highest_place(logits)
        for temperature in TEMPERATURES:
            scale = np.float32(1.0) / np.float32(temperature)
            for ids in (every, some):
                keys = int(rng.integers(2**63)), int(rng.integers(2**31)), int(rng.integers(4)), 0
                wanted = raced(logits, ids, scale, *keys)
                assert can_draw(logits, best, scale)
                choose(team.ctypes.data, logits, ids, scale, *keys, out)
                assert out[0] == best == logits.argmax()
                assert (out[1] if not len(ids) else ids[out[1]]) == wanted
                assert draw(logits, ids, best, scale, *keys) == out[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.05, 1.0, 1.25])
def test_many_draws_are_the_races(scale, dtype) -> None:
    rng, scale, none = np.random.default_rng(7), np.float32(scale), np.empty(0, np.int64)
    drawn = []
    for position in range(1500):
        logits = (rng.standard_normal(700) * 3).astype(dtype)
        drawn.append(draw(logits, none, int(logits.argmax()), scale, 5, position, 0, 0))
        assert drawn[-1] == raced(logits, none, scale, 5, position, 0, 0)
    assert len(set(drawn)) > 100


def test_an_id_with_little_noise_wins_from_far_below() -> None:
    """An id of little weight wins where its noise is low enough, and only there."""
    word = np.uint32(0)
    for position in range(40_000):
        block = philox_block(
            np.uint32(0), np.uint32(position), np.uint32(0), np.uint32(0), np.uint32(1), np.uint32(0)
        )
        lane = int(np.argmin(block[1:])) + 1
        if block[lane] < 2**20 and block[0] > 2**31:
            word = block[lane]
            break
    assert 0 < word < 2**20
    least = (float(word) + 0.5) / 2.0**32
    first = -math.log1p(-(float(block[0]) + 0.5) / 2.0**32)
    border = math.log(-math.log1p(-least) / first)
    none, one = np.empty(0, np.int64), np.float32(1.0)
    for offset in (-1e-3, -1e-5, 1e-5, 1e-3):
        logits = np.full(4, -INF, np.float32)
        logits[0], logits[lane] = 0.0, border + offset
        wanted = raced(logits, none, one, 1, position, 0, 0)
        assert wanted == (lane if offset > 0 else 0)
        assert draw(logits, none, 0, one, 1, position, 0, 0) == wanted


@njit(nogil=True)
def words_of(size, position):
    """Return the noise of the first `size` ids."""
    out, zero = np.empty(size, np.uint32), np.uint32(0)
    for block in range(size // 4):
        words = philox_block(np.uint32(block), np.uint32(position), zero, zero, np.uint32(1), zero)
        out[4 * block], out[4 * block + 1], out[4 * block + 2], out[4 * block + 3] = words
    return out


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_of_ids_with_equal_noise_the_lowest_wins(num_threads) -> None:
    team, out = make_team(num_threads), np.empty(2, np.int64)
    for position in range(100):
        words = words_of(2**16, position)
        order = np.argsort(words, kind="stable")
        equal = np.flatnonzero(np.diff(words[order]) == 0)
        if len(equal):
            break
    low, high = order[equal[0]], order[equal[0] + 1]
    others = np.setdiff1d(np.arange(200), [low, high])[:130]
    logits = np.full(132, -INF, np.float32)
    logits[[0, -1]] = 2.0
    for first, last in ((low, high), (high, low)):
        ids = np.concatenate(([first], others, [last]))
        choose(team.ctypes.data, logits, ids, np.float32(1), 1, position, 0, 0, out)
        assert ids[out[1]] == low == raced(logits, ids, np.float32(1), 1, position, 0, 0)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_the_highest_of_parts_is_the_rows(num_threads) -> None:
    team, out, none = make_team(num_threads), np.empty(2, np.int64), np.empty(0, np.int64)
    rng = np.random.default_rng(3)
    for size in SIZES:
        logits = rng.integers(0, 3, size).astype(np.float32)
        for place in {0, size // 2, size - 1}:
            broken = logits.copy()
            broken[place] = np.nan
            choose(team.ctypes.data, logits, none, np.float32(1), 1, 2, 3, 0, out)
            assert out[0] == logits.argmax()
            choose(team.ctypes.data, broken, none, np.float32(1), 1, 2, 3, 0, out)
            assert out[0] == -1 == highest_place(broken)


def test_rows_that_are_not_drawn_from() -> None:
    scale = np.float32(1)
    assert not can_draw(np.array([np.nan], np.float32), -1, scale)
    assert not can_draw(np.array([-INF, -INF], np.float32), 0, scale)
    assert not can_draw(np.array([0, INF], np.float32), 1, scale)
    assert not can_draw(np.array([0, 1], np.float32), 1, np.float32(0))
    assert can_draw(np.array([-INF, 1], np.float32), 1, scale)
