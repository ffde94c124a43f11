"""The nucleus of a row on the CPU, found by halving the range of its logits instead of sorting them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_ROUNDING = 1e-5
"""Share of the mass within which the sum of a softmax in float32 may be wrong."""
_FEW = 32


def nucleus(row: Floats, top_p: float) -> Floats | None:
    """Return the row `[V]` with -inf for all but the most probable ids whose total reaches `top_p`; ties go to the lowest ids.

    None where rounding decides which ids these are, and for rows that are not numbers.
    """
    best = row.max()
    if not np.isfinite(best):
        return None
    weights = np.exp(row - best)
    total = weights.sum(dtype=np.float64)
    bound = top_p * total
    # Ids below this have at most half of what may be left out.
    places = np.flatnonzero(weights >= 0.5 * (1.0 - top_p) * total / len(row))
    values, weights = row[places], weights[places]
    above, count = 0.0, 0
    while len(values) > _FEW:
        low, high = values.min(), values.max()
        is_high = values > low + (high - low) / 2
        if low == high or not is_high.any():
            break
        mass = weights[is_high].sum(dtype=np.float64)
        if above + mass < bound:
            above, count = above + mass, count + int(np.count_nonzero(is_high))
            is_high = ~is_high
        values, weights = values[is_high], weights[is_high]
    order = np.argsort(-values, kind="stable")
    before = above + np.concatenate(([0.0], weights[order].cumsum(dtype=np.float64)))
    if np.abs(before - bound).min() < _ROUNDING * total:
        return None
    num_last = int(np.count_nonzero(before[:-1] < bound))
    border = values[order[num_last - 1]]
    is_kept = row >= border
    surplus = int(np.count_nonzero(is_kept)) - count - num_last
    if surplus:
        is_kept[np.flatnonzero(row == border)[-surplus:]] = False
    return np.where(is_kept, row, np.float32(-np.inf))
