"""Operations on rows of logits on the CPU, each in one pass over memory where torch needs several."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.jit import njit

Floats = npt.NDArray[np.floating]


@njit(nogil=True, cache=True, error_model="numpy")
def scale(logits: Floats, temperatures: Floats, out: Floats) -> None:
    """Write `(logits - max) / temperature` to `out [R, V]`, each row's own. NaN spreads over its row."""
    for r in range(logits.shape[0]):
        row = logits[r]
        highest = row[0]
        has_nan = highest != highest
        for j in range(row.shape[0]):
            has_nan |= row[j] != row[j]
            if row[j] > highest:
                highest = row[j]
        if has_nan:
            highest = row.dtype.type(np.nan)
        for j in range(row.shape[0]):
            out[r, j] = (row[j] - highest) / temperatures[r]


@njit(nogil=True, cache=True)
def are_sound(logits: Floats, out: npt.NDArray[np.bool_]) -> bool:
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
