"""The same noise on the host: compiled, and computed only where it can matter."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from specdec.compiled.jit import njit
from specdec.compiled.math import exp

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_SHIFT = np.uint64(32)
_HALF_STEP = 0.5 / 2.0**32
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
def race(weights: npt.NDArray[np.floating], seed: int, position: int, sample: int, word: int) -> int:
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
            has_chance |= bool(_uniform(lanes[j - start]) < np.float64(weights[j]) * best)
        if not has_chance:
            continue
        for j in range(start, end):
            weight = np.float64(weights[j])
            if weight == 0.0:
                continue
            uniform = _uniform(lanes[j - start])
            if winner >= 0 and uniform >= weight * best:
                continue
            score = -math.log1p(-uniform) / weight
            if winner < 0 or score < best:
                best, winner = score, j
    return winner


@njit(inline="always")
def _uniform(lane: np.uint32) -> float:
    return (np.float64(lane) + 0.5) / 2.0**32


@njit(cache=True, nogil=True)
def race_rows(
    weights: npt.NDArray[np.floating],
    seeds: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    samples: npt.NDArray[np.int64],
    words: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Run one `race` per row.

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
        winners[i] = race(weights[i], seeds[i], positions[i], samples[i], words[i])
    return winners


@njit(cache=True, nogil=True)
def gumbel_rows(
    seeds: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    samples: npt.NDArray[np.int64],
    word: int,
    vocab_size: int,
) -> npt.NDArray[np.float32]:
    """Return Gumbel noise `-log(-log1p(-u))`, `[R, V]`, from the uniforms of `race`; arguments as for `race_rows`."""
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
                uniform = _uniform(lanes[lane])
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
            out[i, j] = _uniform(lane)
    return out


@njit(cache=True, nogil=True, inline="always")
def _draw(
    logits: npt.NDArray[np.floating],
    is_greedy: bool,
    seed: int,
    position: int,
    sample: int,
    weights: npt.NDArray[np.floating],
) -> int:
    """Return the id drawn from `logits [V]`; -1 if they contain NaN or are all -inf. `weights [V]` is scratch."""
    best, has_nan = 0, False
    for j in range(logits.shape[0]):
        has_nan |= logits[j] != logits[j]
        if logits[j] > logits[best]:
            best = j
    highest = logits[best]
    if has_nan or highest == -np.inf:
        return -1
    if is_greedy:
        return best
    for j in range(logits.shape[0]):
        weights[j] = exp(logits[j] - highest)
    return race(weights, seed, position, sample, 0)


@njit(cache=True, nogil=True)
def walk(
    logits: npt.NDArray[np.floating],
    is_greedy: npt.NDArray[np.bool_],
    row_starts: npt.NDArray[np.int64],
    num_nodes: npt.NDArray[np.int64],
    drafted: npt.NDArray[np.int64],
    parents: npt.NDArray[np.int64],
    seeds: npt.NDArray[np.int64],
    samples: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    out_nodes: npt.NDArray[np.int64],
    out_tokens: npt.NDArray[np.int64],
    out_counts: npt.NDArray[np.int64],
) -> None:
    """Walk each request's draft along the nodes that equal the token drawn at their position.

    Draws are made after the last committed token and after accepted nodes. Equal siblings are accepted together. The
    longest accepted path is returned; of equally long paths, the first.

    Args:
        logits: `[R, V]` p-logits (the target's after temperature and cuts), with at least one above -inf in each row.
        is_greedy: `[B]` whether to take the best id instead of drawing; ties go to the lowest id.
        row_starts: `[B]` row of each request's last committed token.
        num_nodes: `[B]`.
        drafted: `[B, N]` drafted ids.
        parents: `[B, N]` parents.
        seeds: `[B]`.
        samples: `[B]`.
        positions: `[B]` absolute position of the first token to emit.
        out_nodes: `[B, N + 1]` written: accepted nodes.
        out_tokens: `[B, N + 1]` written: emitted tokens.
        out_counts: `[B]` written: accepted nodes per request.
    """
    drawn = np.empty(drafted.shape[1] + 1, np.int64)
    depths = np.zeros(drafted.shape[1] + 1, np.int64)
    weights = np.empty(logits.shape[1], logits.dtype)
    for i in range(row_starts.shape[0]):
        first = row_starts[i]
        drawn[0] = _draw(logits[first], is_greedy[i], seeds[i], positions[i], samples[i], weights)
        last = -1
        for node in range(num_nodes[i]):
            parent = parents[i, node]
            drawn[node + 1] = -1
            if drafted[i, node] != drawn[parent + 1]:
                continue
            depth = depths[parent + 1] + 1
            depths[node + 1] = depth
            row, position = logits[first + node + 1], positions[i] + depth
            drawn[node + 1] = _draw(row, is_greedy[i], seeds[i], position, samples[i], weights)
            if depth > depths[last + 1]:
                last = node
        count = depths[last + 1]
        out_counts[i] = count
        out_tokens[i, count] = drawn[last + 1]
        node = last
        for place in range(count - 1, -1, -1):
            out_nodes[i, place] = node
            out_tokens[i, place] = drafted[i, node]
            node = parents[i, node]
