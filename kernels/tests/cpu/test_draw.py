"""Draws from logits against the race over all weights, in any number of parts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from kernelcheck import from_python
from numba import njit

from specdec.noise import uniforms
from specdec_kernels.cpu.compiled.jobs import call_of
from specdec_kernels.cpu.compiled.math import exp
from specdec_kernels.cpu.compiled.team import make_team, run_with_team
from specdec_kernels.cpu.rows.draw import EVERY_ID, can_draw, draw
from specdec_kernels.cpu.rows.in_team import draw_in_team, highest_in_team, sure_of_highest
from specdec_kernels.cpu.rows.noise import multinomial, philox_block

INF, ONE = math.inf, np.float32(1)
draws, is_drawable = from_python(draw), from_python(can_draw)
THREADS = pytest.mark.parametrize("num_threads", [1, 2, 3, 8])


@njit(nogil=True)
def _choose(team, logits, ids, scale, seed, position, ratio, out, sure):
    out[0] = highest_in_team(team, logits)
    if out[0] >= 0:
        out[1], sure[0] = draw_in_team(team, logits, ids, out[0], scale, seed, position, 3, 0, ratio)
        sure[1] = sure_of_highest(logits, out[0])


@njit(nogil=True)
def choose(team, logits, ids, scale, seed, position, ratio, out, sure):
    run_with_team(team, call_of(_choose, (team, logits, ids, scale, seed, position, ratio, out, sure)))


def chosen(num_threads, *arguments) -> list[int]:
    """Return the index of the highest logit and that of the id drawn."""
    return chosen_with(num_threads, *arguments, 1.0)[0]


def chosen_with(num_threads, *arguments) -> tuple[list[int], list[float]]:
    """Return them, and how sure the draw, by the last argument, and the highest are."""
    team, out, sure = make_team(num_threads), np.full(2, -1), np.ones(2, np.float32)
    choose(team.ctypes.data, *arguments, out, sure)
    return out.tolist(), sure.tolist()


@njit(nogil=True, error_model="numpy")
def _weigh(logits, scale, weights):
    highest = logits.max()
    for j in range(logits.shape[0]):
        weights[j] = exp((logits[j] - highest) * scale)


def raced(logits, ids, scale, seed, position) -> int:
    """Return the id that the race over all weights finds."""
    weights = np.empty_like(logits)
    _weigh(logits, scale, weights)
    wide = weights if not len(ids) else np.zeros(ids.max() + 1, logits.dtype)
    if len(ids):
        wide[ids] = weights
    return multinomial(wide, seed, position, 3, 0)


@THREADS
@pytest.mark.parametrize("size", [1, 3, 63, 64, 65, 130, 1000, 4096])
@pytest.mark.sampled(8, slow=12)
def test_it_draws_what_the_race_does(size, num_threads) -> None:
    """Rows are wide, narrow, tied, cut, equal, with an id far above, steep, and high; also with one NaN."""
    rng = np.random.default_rng(size)
    ids = np.sort(rng.permutation(3 * size + 5)[:size])
    ids[size // 2 :] = rng.permutation(ids[size // 2 :])  # ids beside the listed ones are in any order
    wide = rng.standard_normal(size) * 4
    far, cut, broken = (
        np.full(size, -1e30),
        np.where(rng.random(size) < 0.1, wide, -INF),
        wide.astype(np.float32),
    )
    far[rng.integers(size)], cut[rng.integers(size)], broken[rng.integers(size)] = 3e38, 1.0, math.nan
    for row in (wide, wide / 100, wide.round(), cut, 0 * wide, far, -np.arange(size) * 20.0, wide + 1e4):
        logits = row.astype(np.float32)
        for temperature in (1e-30, 1e-3, 0.3, 0.8, 1.0, 2.0, 50.0, 1e30):
            scale, keys = ONE / np.float32(temperature), (int(rng.integers(2**63)), int(rng.integers(2**31)))
            for own in (np.empty(0, np.int64), ids):
                best, index = chosen(num_threads, logits, own, scale, *keys)
                assert best == logits.argmax()
                assert is_drawable(logits, best, scale)
                assert (own[index] if len(own) else index) == raced(logits, own, scale, *keys)
    assert chosen(num_threads, broken, ids, ONE, 1, 2)[0] == -1


@THREADS
@pytest.mark.parametrize("size", [1, 2, 3, 65, 1000])
@pytest.mark.sampled(6, slow=6)
def test_how_sure_a_draw_is(size, num_threads) -> None:
    """It is the winner's share of its weight and the next best one's, noise included, where these are within the ratio."""
    rng, ids = np.random.default_rng(size), np.empty(0, np.int64)
    num_close = 0
    for position in range(150):
        logits, scale = (rng.standard_normal(size) * 2).astype(np.float32), np.float32(1.25)
        keys = (torch.tensor([number]) for number in (5, position, 3, 0))
        noise = np.log(-np.log1p(-uniforms(*keys, size)[0].numpy()))
        scores = np.sort(logits * np.float64(scale) - noise)[::-1]
        (best, index), (sure, highest) = chosen_with(num_threads, logits, ids, scale, 5, position, 1.5)
        assert [best, index] == chosen(num_threads, logits, ids, scale, 5, position)
        if size == 1:
            assert sure == highest == 1.0
            continue
        margin, top = scores[0] - scores[1], np.sort(logits)[::-1]
        assert highest == pytest.approx(1 / (1 + math.exp(top[1] - top[0])), rel=1e-5)
        if margin < math.log(1.5):
            num_close += 1
            assert sure == pytest.approx(1 / (1 + math.exp(-margin)), rel=1e-5)
        else:
            assert sure >= 0.6 - 1e-6
    assert num_close > 5 or size == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.05, 1.0, 1.25])
@pytest.mark.sampled(2, slow=2)
def test_many_draws_are_the_races(scale, dtype) -> None:
    rng, scale = np.random.default_rng(7), np.float32(scale)
    for position in range(1500):
        logits = (rng.standard_normal(700) * 3).astype(dtype)
        drawn = draws(logits, EVERY_ID, int(logits.argmax()), scale, 5, position, 3, 0)
        assert drawn == raced(logits, EVERY_ID, scale, 5, position)


@njit(nogil=True)
def words_of(size, position):
    """Return the noise of the first `size` ids for seed 1."""
    out, zero = np.empty(size, np.uint32), np.uint32(0)
    for block in range(size // 4):
        words = philox_block(np.uint32(block), np.uint32(position), np.uint32(3), zero, np.uint32(1), zero)
        out[4 * block], out[4 * block + 1], out[4 * block + 2], out[4 * block + 3] = words
    return out


def test_little_noise_lets_an_id_win_from_just_so_far_below() -> None:
    for position in range(50):
        words = words_of(2**16, position)
        lane = int(words.argmin())
        first, least = -np.log1p(-(words[[0, lane]] + 0.5) / 2.0**32)
        for offset in (-1e-3, -1e-5, 1e-5, 1e-3):
            logits = np.full(2**16, -INF, np.float32)
            logits[0], logits[lane] = 0.0, math.log(least / first) + offset
            wanted = raced(logits, EVERY_ID, ONE, 1, position)
            assert draws(logits, EVERY_ID, 0, ONE, 1, position, 3, 0) == wanted == (lane if offset > 0 else 0)


@THREADS
def test_of_ids_with_equal_noise_the_lowest_wins(num_threads) -> None:
    found = 0
    for position in range(10):
        words = words_of(2**16, position)
        order = np.argsort(words, kind="stable")
        for place in np.flatnonzero(np.diff(words[order]) == 0):
            found += 1
            low, high = order[place], order[place + 1]
            logits = np.full(132, -INF, np.float32)
            logits[[0, -1]] = 2.0
            for first, last in ((low, high), (high, low)):
                ids = np.array([first, *np.setdiff1d(np.arange(200), [low, high])[:130], last])
                assert ids[chosen(num_threads, logits, ids, ONE, 1, position)[1]] == low
                assert raced(logits, ids, ONE, 1, position) == low
    assert found


@pytest.mark.parametrize("row", [[-INF, -INF], [0, INF]])
def test_rows_that_are_not_drawn_from(row) -> None:
    assert not is_drawable(np.array(row, np.float32), 1, ONE)
    assert not is_drawable(np.zeros(2, np.float32), 1, np.float32(0))
