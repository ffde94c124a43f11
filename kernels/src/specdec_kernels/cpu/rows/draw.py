"""Draws from logits: the id that `multinomial` finds for e^x of them; bounds replace nearly every e^x and logarithm."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.math import LOG2E, LOWEST, exp
from specdec_kernels.cpu.compiled.team import part_of
from specdec_kernels.cpu.rows.noise import philox_block, uniform_of

Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int64]
EVERY_ID = np.empty(0, np.int64)
"""The ids of a row that has a logit for each."""
_CHUNK = 64
"""Ids whose noise is computed together."""
_UNIT = np.float32(2.0**23)
"""What a factor of two adds to the bits of a float32, read as an integer."""
_OFFSET = 127.0 + 32.0 + 1e-3
"""In such factors: float32's bias, words in place of uniforms, and more than all rounding together, which is below 1e-4."""


@njit(nogil=True, error_model="numpy")
def can_draw(logits: Floats, best: int, scale: np.float32) -> bool:
    """Return whether `draw_part` takes a row, whose highest logit is at `best`, or -1 for NaN; compiled without fastmath."""
    return bool(best >= 0 and -np.inf < logits[best] < np.inf and scale > 0)


@njit(nogil=True, error_model="numpy")
def draw(
    logits: Floats, ids: Ints, best: int, scale: np.float32, seed: int, position: int, sample: int, word: int
) -> int:  # fmt: skip
    """Return the index that `draw_part` finds in all of a row."""
    scores, seconds, places = np.empty(1), np.empty(1), np.empty(1, np.int64)
    draw_part(logits, ids, best, scale, seed, position, sample, word, 1.0, scores, seconds, places, 0, 1)
    return int(places[0])


@njit(nogil=True, error_model="numpy")
def draw_part(
    logits: Floats,
    ids: Ints,
    best: int,
    scale: np.float32,
    seed: int,
    position: int,
    sample: int,
    word: int,
    ratio: float,
    scores: npt.NDArray[np.float64],
    seconds: npt.NDArray[np.float64],
    places: Ints,
    part: int,
    num_parts: int,
) -> None:
    """Find in a part of a row, and the best id, the lowest `score = e / exp((logit - highest) * scale)`, `e` exponential.

    An exponential is at least its uniform u, so an id can win only if `log2 u <= log2 exp(...) + log2 lowest`. In place of
    `log2 u` stand the bits of u as a float32, which exceed it nowhere.

    Args:
        logits: `[V]` numbers or -inf.
        ids: `[V]` the ids that the noise is of, or empty for 0 to V - 1.
        best: index of the highest logit, which is finite.
        scale: above 0.
        seed: see `multinomial`, like the next three.
        position: ditto.
        sample: ditto.
        word: ditto.
        ratio: the second lowest score is found if it is below so many times the lowest; at least 1.
        scores: `[num_parts]` the lowest score, written.
        seconds: `[num_parts]` the second lowest, or any higher number or infinity, written.
        places: `[num_parts]` its index, written; of equal scores, that of the lowest id.
        part: which part.
        num_parts: how many there are; what is lowest of all does not depend on it.
    """
    k0, k1 = np.uint32(seed & 0xFFFFFFFF), np.uint32((seed >> 32) & 0xFFFFFFFF)
    c1, c2, c3 = np.uint32(position), np.uint32(sample), np.uint32(word)
    words = np.empty(_CHUNK, np.uint32)
    size, highest = logits.shape[0], logits[best]
    start = best // _CHUNK * _CHUNK
    _fill(words, ids[start : start + _CHUNK], start, c1, c2, c3, k0, k1)
    lowest, winner = -math.log1p(-uniform_of(words[best - start])), best
    second, room = np.inf, _OFFSET + math.log2(ratio)
    slope, level = LOG2E * _UNIT, np.float32((math.log2(lowest) + room) * _UNIT)
    for chunk in part_of((size + _CHUNK - 1) // _CHUNK, part, num_parts):
        start = chunk * _CHUNK
        row, own = logits[start : start + _CHUNK], ids[start : start + _CHUNK]
        _fill(words, own, start, c1, c2, c3, k0, k1)
        has_chance = np.int32(0)
        for j in range(row.shape[0]):
            has_chance |= np.int32(_may_win(words[j], row[j], highest, scale, slope, level))
        if has_chance == 0:
            continue
        for j in range(row.shape[0]):
            if start + j == best or not _may_win(words[j], row[j], highest, scale, slope, level):
                continue
            score = -math.log1p(-uniform_of(words[j])) / np.float64(exp((row[j] - highest) * scale))
            is_lower = start + j < winner if ids.shape[0] == 0 else own[j] < ids[winner]
            if score < lowest or (score == lowest and is_lower):
                second, lowest, winner = lowest, score, start + j
                level = np.float32((math.log2(lowest) + room) * _UNIT)
            elif score < second:
                second = score
    scores[part], seconds[part], places[part] = lowest, second, winner


@njit(inline="always")
def _fill(
    words: npt.NDArray[np.uint32], own: Ints, start: int, c1: np.uint32, c2: np.uint32, c3: np.uint32, k0: np.uint32,
    k1: np.uint32,
) -> None:  # fmt: skip
    """Write the noise of `own` ids, or if there are none, of those from `start` on."""
    for j in range(own.shape[0]):
        word0, word1, word2, word3 = philox_block(np.uint32(own[j] >> 2), c1, c2, c3, k0, k1)
        low = word1 if own[j] & 1 else word0
        high = word3 if own[j] & 1 else word2
        words[j] = high if own[j] & 2 else low
    if own.shape[0]:
        return
    for block in range(_CHUNK // 4):
        word0, word1, word2, word3 = philox_block(np.uint32(start // 4 + block), c1, c2, c3, k0, k1)
        words[4 * block], words[4 * block + 1] = word0, word1
        words[4 * block + 2], words[4 * block + 3] = word2, word3


@njit(inline="always")
def _may_win(
    word: np.uint32, logit: np.float32, highest: np.float32, scale: np.float32, slope: np.float32, level: np.float32
) -> bool:  # fmt: skip
    below = max(np.float32((logit - highest) * scale), LOWEST)
    uniform = np.float32(np.float32(word) + np.float32(0.5))
    return bool(uniform.view(np.int32) <= np.int32(below * slope + level))
