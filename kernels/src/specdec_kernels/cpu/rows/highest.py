"""The highest of many logits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.jit import njit

_LANES = 64
"""Independent maxima, which the compiler keeps in registers; it may not reorder one."""


@njit(nogil=True, error_model="numpy")
def highest_of(logits: npt.NDArray[np.floating]) -> Any:
    """Return the highest of `logits [V]`; NaN if one of them is NaN."""
    tops = np.full(_LANES, -np.inf, logits.dtype)
    whole = logits.shape[0] // _LANES * _LANES
    for start in range(0, whole, _LANES):
        for lane in range(_LANES):
            top, other = tops[lane], logits[start + lane]
            tops[lane] = top if other <= top or top != top else other  # NaN replaces a number, and stays
    for j in range(whole, logits.shape[0]):
        top, other = tops[j - whole], logits[j]
        tops[j - whole] = top if other <= top or top != top else other
    highest = tops[0]
    for lane in range(1, _LANES):
        highest = highest if tops[lane] <= highest or highest != highest else tops[lane]
    return highest


@njit(nogil=True, error_model="numpy")
def highest_place(logits: npt.NDArray[np.floating]) -> int:
    """Return the lowest index of the highest of `logits [V]`; -1 if one of them is NaN."""
    highest = highest_of(logits)
    if highest != highest:
        return -1
    best = 0
    while logits[best] != highest:
        best += 1
    return best
