"""Draws from rows that top-k and top-p cut: draws, looks whether the id is kept, and if not, draws among the ids before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.compiled.math import exp
from specdec_kernels.cpu.rows.draw import EVERY_ID, Floats, Ints, draw
from specdec_kernels.cpu.rows.highest import highest_place
from specdec_kernels.cpu.rows.nucleus import ROUNDING

_CHUNK = 64
_ONE = np.float32(1.0)


@njit(nogil=True, error_model="numpy")
def draw_cut(
    logits: Floats, best: int, top_k: int, top_p: float, seed: int, position: int, sample: int, word: int
) -> int:  # fmt: skip
    """Return the id that `draw` finds in a row after top-k and then top-p, in the order of logits and then ids.

    An id that is drawn among more ids than are kept, and is one of these, is the one drawn among these. If it is cut, so is
    all that comes behind it, and the ids before it are drawn from.

    Args:
        logits: `[V]` the highest is 0.
        best: its lowest index.
        top_k: number of ids to keep; V keeps all.
        top_p: share of the mass of these to keep; 1 keeps all.
        seed: see `draw`, like the next three.
        position: ditto.
        sample: ditto.
        word: ditto.

    Returns:
        the id, or -1 if rounding decides whether it is kept.
    """
    total = 0.0
    if top_k < logits.shape[0]:
        values, ids = _first_ids(logits, EVERY_ID, _place_of_last(logits, top_k), 1)
    else:
        place, is_kept, total = _attempt(logits, EVERY_ID, best, total, top_p, seed, position, sample, word)
        if is_kept != 0:
            return place if is_kept > 0 else -1
        values, ids = _first_ids(logits, EVERY_ID, place, 0)
    while True:
        first = highest_place(values)
        place, is_kept, total = _attempt(values, ids, first, total, top_p, seed, position, sample, word)
        if is_kept != 0:
            return int(ids[place]) if is_kept > 0 else -1
        values, ids = _first_ids(values, ids, place, 0)


@njit(nogil=True, error_model="numpy")
def _attempt(
    values: Floats, ids: Ints, best: int, total: float, top_p: float, seed: int, position: int, sample: int, word: int
) -> tuple[int, int, float]:  # fmt: skip
    """Draw; return the index, whether top-p keeps it (1), cuts it (0) or rounding decides (-1), and the mass of all.

    `total` is that mass, or 0 for that of `values`.
    """
    place = draw(values, ids, best, _ONE, seed, position, sample, word)
    if top_p >= 1.0:
        return place, 1, total
    before, own = _masses(values, place)
    total = own if total == 0.0 else total
    distance = top_p * total - before
    if abs(distance) < ROUNDING * total:
        return place, -1, total
    return place, int(distance > 0.0), total


@njit(nogil=True, fastmath={"reassoc", "nsz", "contract"})
def _masses(values: Floats, place: int) -> tuple[float, float]:
    """Return the mass `e^x` of the values before one, in the order of values and then places, and of all."""
    border, before, total = values[place], 0.0, 0.0
    for j in range(values.shape[0]):
        weight = np.float64(exp(values[j]))
        total += weight
        before += weight if (values[j] > border) | ((values[j] == border) & (j < place)) else 0.0
    return before, total


@njit(nogil=True)
def _first_ids(values: Floats, ids: Ints, place: int, num_more: int) -> tuple[Any, Ints]:
    """Return the values before one, and their ids, in the order of ids; with `num_more` of 1 that one too.

    Args:
        values: `[n]`.
        ids: `[n]` ascending, or empty if they are 0 to n - 1.
        place: of the value.
        num_more: 0 or 1.
    """
    border, count = values[place], num_more
    for j in range(values.shape[0]):
        count += (values[j] > border) | ((values[j] == border) & (j < place))
    found, names = np.empty(count, values.dtype), np.empty(count, np.int64)
    end = 0
    for start in range(0, values.shape[0], _CHUNK):
        part = values[start : start + _CHUNK]
        has_any = np.int32(0)
        for j in range(part.shape[0]):
            has_any |= np.int32(part[j] >= border)
        if has_any == 0:
            continue
        for j in range(part.shape[0]):
            if part[j] > border or (part[j] == border and start + j < place + num_more):
                found[end], names[end] = part[j], start + j if ids.shape[0] == 0 else ids[start + j]
                end += 1
    return found, names


@njit(nogil=True)
def _place_of_last(values: Floats, count: int) -> int:
    """Return the place of the last of the `count` highest values; of equal values the first places count."""
    tops = np.empty((values.shape[0] + _CHUNK - 1) // _CHUNK, values.dtype)
    for chunk in range(tops.shape[0]):
        top = values[chunk * _CHUNK]
        for value in values[chunk * _CHUNK : (chunk + 1) * _CHUNK]:
            top = max(top, value)
        tops[chunk] = top
    # As many values as there are tops from this one on are at least this one.
    least = (
        np.partition(tops, tops.shape[0] - count)[-count]
        if count <= tops.shape[0]
        else values.dtype.type(-np.inf)
    )
    high = np.empty_like(values)
    end = 0
    for chunk in range(tops.shape[0]):
        if tops[chunk] >= least:
            for value in values[chunk * _CHUNK : (chunk + 1) * _CHUNK]:
                if value >= least:
                    high[end] = value
                    end += 1
    border = np.partition(high[:end], end - count)[end - count]
    room = count - np.sum(high[:end] > border)
    place = -1
    while room > 0:
        place += 1
        room -= values[place] == border
    return place
