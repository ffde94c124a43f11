"""Top-p without sorting a row: the range of logits in which its border lies is halved until few are left."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec_kernels.cpu.compiled.arrays import copy_row
from specdec_kernels.cpu.compiled.jit import njit

Floats = npt.NDArray[np.floating]
ROUNDING = 1e-5
"""Share of the mass within which the sums of a softmax in float32 may be wrong."""
_FEW = 24


@njit(nogil=True, cache=True)
def keep_nuclei(
    logits: Floats,
    weights: Floats,
    top_p: npt.NDArray[np.float64],
    out: Floats,
    is_done: npt.NDArray[np.bool_],
) -> None:
    """Write rows with -inf for all but the most probable ids whose total reaches `top_p`; ties go to the lowest ids.

    Args:
        logits: `[R, V]`.
        weights: `[R, V]`: `exp(logits - max)`.
        top_p: `[R]`; 1 keeps a row as it is.
        out: `[R, V]`.
        is_done: `[R]`: written; False where rounding decides, or a row is not made of numbers.
    """
    size = logits.shape[1]
    places = np.empty(size, np.int64)
    for r in range(logits.shape[0]):
        row, mass_of = logits[r], weights[r]
        is_done[r] = True
        if top_p[r] >= 1.0:
            copy_row(row, out[r])
            continue
        total = 0.0
        for j in range(size):
            total += mass_of[j]
        bound = top_p[r] * total
        # Ids below this have at most half of what may be left out.
        least = 0.5 * (total - bound) / size
        end = 0
        for j in range(size):
            if mass_of[j] >= least:
                places[end] = j
                end += 1
        if not (total > 0.0 and total < np.inf) or end == 0:
            is_done[r] = False
            continue
        start, above = 0, 0.0
        while end - start > _FEW:
            low = high = row[places[start]]
            for i in range(start, end):
                low, high = min(low, row[places[i]]), max(high, row[places[i]])
            middle = low + (high - low) / 2
            if not low <= middle < high:
                break
            split, mass = start, 0.0
            for i in range(start, end):
                j = places[i]
                if row[j] > middle:
                    mass += mass_of[j]
                    places[i], places[split] = places[split], j
                    split += 1
            if above + mass < bound:
                start, above = split, above + mass
            else:
                end = split
        # The places in order of logits; nothing before `start` is looked at again.
        for i in range(start + 1, end):
            j, k = places[i], i
            while k > start and row[places[k - 1]] < row[j]:
                places[k] = places[k - 1]
                k -= 1
            places[k] = j
        border, num_kept = row[places[start]], 0
        is_near = abs(above - bound) < ROUNDING * total
        for i in range(start, end):
            if above >= bound:
                break
            border, num_kept = row[places[i]], i + 1
            above += mass_of[places[i]]
            is_near |= abs(above - bound) < ROUNDING * total
        is_done[r] = not is_near
        surplus = -num_kept
        for j in range(size):
            surplus += row[j] >= border
        for j in range(size - 1, -1, -1):
            is_kept = row[j] >= border
            if surplus > 0 and row[j] == border:
                is_kept = False
                surplus -= 1
            out[r, j] = row[j] if is_kept else -np.inf
