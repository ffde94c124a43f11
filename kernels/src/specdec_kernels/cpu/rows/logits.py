"""Operations on rows of logits on the CPU, each in one pass over memory where torch needs several."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.arrays import copy_row
from specdec_kernels.cpu.compiled.jit import njit
from specdec_kernels.cpu.rows.highest import highest_of

Floats = npt.NDArray[np.floating]
_LOWEST, _HIGHEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
"""Temperatures beyond these are replaced by them."""


@njit(nogil=True, cache=True, error_model="numpy")
def scale(logits: Floats, temperatures: Floats, out: Floats) -> None:
    """Write `(logits - max) / temperature` to `out [R, V]`, each row's own. NaN spreads over its row."""
    for r in range(logits.shape[0]):
        _scale_row(logits[r], temperatures[r], out[r])


@njit(nogil=True, cache=True, error_model="numpy")
def scale_all(logits: Floats, settings: npt.NDArray[np.float64], floors: Floats, out: Floats) -> bool:
    """Do what `RowOperations.truncated` does if top-k and top-p cut no row; else it returns False and writes nothing.

    `floors [R]` are the logarithms of min-p.
    """
    for r in range(logits.shape[0]):
        if settings[2, r] < logits.shape[1] or settings[3, r] < 1.0:
            return False
    for r in range(logits.shape[0]):
        if settings[0, r] > 0.0:
            _scale_row(logits[r], min(max(settings[0, r], _LOWEST), _HIGHEST), out[r])
            if settings[1, r] > 0.0:
                for j in range(logits.shape[1]):
                    out[r, j] = -np.inf if out[r, j] < floors[r] else out[r, j]
        else:
            copy_row(logits[r], out[r])
    return True


@njit(nogil=True, error_model="numpy")
def _scale_row(row: Floats, temperature: float, out: Floats) -> None:
    highest = highest_of(row)
    for j in range(row.shape[0]):
        out[j] = (row[j] - highest) / temperature


@njit(nogil=True, cache=True)
def are_valid(logits: Floats, out: npt.NDArray[np.bool_]) -> bool:
    """Write to `out [R]` which rows of `logits [R, V]` have no NaN and a value above -inf; returns whether all do."""
    is_all = True
    for r in range(logits.shape[0]):
        row = logits[r]
        has_nan, has_choice = False, False
        for j in range(row.shape[0]):
            has_nan |= row[j] != row[j]
            has_choice |= row[j] > -np.inf
        out[r] = has_choice and not has_nan
        is_all &= out[r]
    return is_all


@njit(nogil=True, cache=True)
def best_ids(logits: Floats, out: npt.NDArray[np.int64]) -> None:
    """Write the argmax `[R]` of `logits [R, V]`, ignoring NaN; ties go to the lowest id."""
    for r in range(logits.shape[0]):
        row = logits[r]
        highest = row.dtype.type(-np.inf)
        for j in range(row.shape[0]):
            if row[j] > highest:
                highest = row[j]
        best = 0
        while best < row.shape[0] - 1 and row[best] != highest:
            best += 1
        out[r] = best
