"""The same noise on the CPU: compiled, and computed only where it can matter."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.jit import njit

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_SHIFT = np.uint64(32)
_HALF_STEP = 0.5 / 2.0**32
Int64s = npt.NDArray[np.int64]
_CHUNK = 64
"""Ids whose noise is computed together: as many counters as a wide vector register holds."""


@njit(inline="always")
def philox_block(
    c0: np.uint32, c1: np.uint32, c2: np.uint32, c3: np.uint32, k0: np.uint32, k1: np.uint32
) -> tuple[np.uint32, np.uint32, np.uint32, np.uint32]:
    """Return the four output words of one counter; all arguments are unsigned 32-bit."""
    for _ in range(10):
        p0, p1 = _M0 * np.uint64(c0), _M1 * np.uint64(c2)
        c0, c1, c2, c3 = (
            np.uint32(p1 >> _SHIFT) ^ c1 ^ k0,
            np.uint32(p1),
            np.uint32(p0 >> _SHIFT) ^ c3 ^ k1,
            np.uint32(p0),
        )
        k0, k1 = np.uint32(k0 + _W0), np.uint32(k1 + _W1)
    return c0, c1, c2, c3


@njit(cache=True, nogil=True)
def multinomial(weights: npt.NDArray[np.floating], seed: int, position: int, sample: int, word: int) -> int:
    """Return `argmin(e_j / w_j)`, which draws j with probability proportional to `w_j`; ties go to the lowest id.

    An exponential is at least its uniform, so the logarithm is taken only where `u_j < w_j * best`.

    Args:
        weights: `[V]`, not negative; need not sum to 1.
        seed: 64-bit request seed.
        position: see `specdec.noise.keys`.
        sample: sample index.
        word: counter word from `node_word`.
    """
    k0, k1 = np.uint32(seed & 0xFFFFFFFF), np.uint32((seed >> 32) & 0xFFFFFFFF)
    c1, c2, c3 = np.uint32(position), np.uint32(sample), np.uint32(word)
    size = weights.shape[0]
    best, winner = np.inf, -1
    lanes = np.empty(_CHUNK, np.uint32)
    for start in range(0, size, _CHUNK):
        end = min(start + _CHUNK, size)
        heaviest = np.float32(0.0)
        for j in range(start, end):
            heaviest = max(heaviest, weights[j])
        if heaviest == 0.0 or (winner >= 0 and heaviest * best <= _HALF_STEP):
            continue
        for block in range(_CHUNK // 4):
            word0, word1, word2, word3 = philox_block(np.uint32(start // 4 + block), c1, c2, c3, k0, k1)
            lanes[4 * block], lanes[4 * block + 1] = word0, word1
            lanes[4 * block + 2], lanes[4 * block + 3] = word2, word3
        has_chance = bool(winner < 0)
        for j in range(start, end):
            has_chance |= bool(uniform_of(lanes[j - start]) < np.float64(weights[j]) * best)
        if not has_chance:
            continue
        for j in range(start, end):
            weight = np.float64(weights[j])
            if weight == 0.0:
                continue
            uniform = uniform_of(lanes[j - start])
            if winner >= 0 and uniform >= weight * best:
                continue
            score = -math.log1p(-uniform) / weight
            if winner < 0 or score < best:
                best, winner = score, j
    return winner


@njit(inline="always")
def uniform_of(lane: np.uint32) -> float:
    """Return the uniform of one output word, strictly between 0 and 1."""
    return (np.float64(lane) + 0.5) / 2.0**32


@njit(cache=True, nogil=True)
def multinomial_rows(
    weights: npt.NDArray[np.floating],
    seeds: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    samples: npt.NDArray[np.int64],
    words: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Run one `multinomial` per row.

    Args:
        weights: `[B, V]`, not negative, with at least one above 0 in each row.
        seeds: `[B]`.
        positions: `[B]`.
        samples: `[B]`.
        words: `[B]`.

    Returns:
        `[B]` the ids drawn.
    """
    winners = np.empty(weights.shape[0], np.int64)
    for i in range(weights.shape[0]):
        winners[i] = multinomial(weights[i], seeds[i], positions[i], samples[i], words[i])
    return winners


@njit(cache=True, nogil=True)
def gumbel_rows(
    seeds: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    samples: npt.NDArray[np.int64],
    word: int,
    vocab_size: int,
) -> npt.NDArray[np.float32]:
    """Return Gumbel noise `-log(-log1p(-u))`, `[R, V]`, from the uniforms of `multinomial`; arguments as there."""
    out = np.empty((seeds.shape[0], vocab_size), np.float32)
    lanes = np.empty(4, np.uint32)
    for i in range(seeds.shape[0]):
        k0, k1 = np.uint32(seeds[i] & 0xFFFFFFFF), np.uint32((seeds[i] >> 32) & 0xFFFFFFFF)
        c1, c2 = np.uint32(positions[i]), np.uint32(samples[i])
        for block in range((vocab_size + 3) // 4):
            lanes[0], lanes[1], lanes[2], lanes[3] = philox_block(
                np.uint32(block), c1, c2, np.uint32(word), k0, k1
            )
            for lane in range(min(4, vocab_size - 4 * block)):
                uniform = uniform_of(lanes[lane])
                out[i, 4 * block + lane] = -math.log(-math.log1p(-uniform))
    return out


@njit(cache=True, nogil=True)
def first_uniforms(
    seeds: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    samples: npt.NDArray[np.int64],
    words: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Return one uniform per row and word: that of token id 0.

    Args:
        seeds: `[B]`.
        positions: `[B]`.
        samples: `[B]`.
        words: `[N]` from `node_word`.

    Returns:
        `[B, N]` strictly between 0 and 1, as in `specdec.noise.uniforms`.
    """
    out = np.empty((seeds.shape[0], words.shape[0]), np.float64)
    for i in range(seeds.shape[0]):
        k0, k1 = np.uint32(seeds[i] & 0xFFFFFFFF), np.uint32((seeds[i] >> 32) & 0xFFFFFFFF)
        for j in range(words.shape[0]):
            lane = philox_block(
                np.uint32(0), np.uint32(positions[i]), np.uint32(samples[i]), np.uint32(words[j]), k0, k1
            )[0]
            out[i, j] = uniform_of(lane)
    return out
