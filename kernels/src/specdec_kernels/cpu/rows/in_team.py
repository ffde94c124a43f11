"""The highest of a row and a draw from it, each shared by the threads of a team; results do not depend on their number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.jobs import job_of
from specdec_kernels.cpu.compiled.team import part_of, share, size_of
from specdec_kernels.cpu.rows.draw import Floats, Ints, draw_part
from specdec_kernels.cpu.rows.highest import highest_of, highest_place


@njit(nogil=True, error_model="numpy")
def highest_in_team(team: int, logits: Floats) -> int:
    """Return the lowest index of the highest of `logits [V]`; -1 if one of them is NaN."""
    places = np.zeros(size_of(team), np.int64)
    share(team, job_of(_highest_part, (logits, places)))
    best = 0
    for place in places:
        if place < 0:
            return -1
        if logits[place] > logits[best]:
            best = int(place)
    return best


@njit(nogil=True, error_model="numpy")
def draw_in_team(
    team: int, logits: Floats, ids: Ints, best: int, scale: np.float32, seed: int, position: int, sample: int, word: int,
    ratio: float,
) -> tuple[int, np.float32]:  # fmt: skip
    """Return the index that `draw` does, and its probability against the next best one alone, the noise of both included, if
    that one is found (see `draw_part`), else 1."""
    count = size_of(team)
    scores, seconds, places = np.full(count, np.inf), np.full(count, np.inf), np.full(count, best)
    share(team, job_of(draw_part, (
        logits, ids, best, scale, seed, position, sample, word, ratio, scores, seconds, places,
    )))  # fmt: skip
    winner = 0
    for part in range(1, scores.shape[0]):
        own, other = places[part], places[winner]
        is_lower = own < other if ids.shape[0] == 0 else ids[own] < ids[other]
        if scores[part] < scores[winner] or (scores[part] == scores[winner] and is_lower):
            winner = part
    second = np.inf
    for part in range(count):
        second = min(second, seconds[part])
        if places[part] != places[winner]:
            second = min(second, scores[part])
    sure = 1.0 if second == np.inf else second / (scores[winner] + second)
    return int(places[winner]), np.float32(sure)


@njit(nogil=True, error_model="numpy")
def sure_of_highest(logits: Floats, best: int) -> np.float32:
    """Return the probability of the highest of `logits [V]`, at `best`, against the next one alone."""
    highest = logits[best]
    logits[best] = -np.inf
    second = highest_of(logits)
    logits[best] = highest
    return np.float32(1.0 / (1.0 + np.exp(second - highest)))


@njit(nogil=True, error_model="numpy")
def _highest_part(logits: Floats, places: npt.NDArray[np.int64], part: int, num_parts: int) -> None:
    own = part_of(logits.shape[0], part, num_parts)
    if len(own):
        place = highest_place(logits[own.start : own.stop])
        places[part] = place + own.start if place >= 0 else -1
