"""Chi-square with a threshold ten standard deviations up: seeds are fixed, so a result is the same in every run."""

from __future__ import annotations

import math

import numpy as np


def bound(degrees: int) -> float:
    """Return the threshold `df + 10 * sqrt(2 * df)`."""
    return degrees + 10 * math.sqrt(2 * degrees)


def excess(counts: np.ndarray, law: np.ndarray) -> float:
    """Return chi-square over its threshold: below 1 passes. Cells expected less than 5 times are put together.

    Args:
        counts: `[M]` how often each cell was seen.
        law: `[M]` probabilities; a cell without chance must not have been seen.
    """
    total = counts.sum()
    assert counts[law == 0].sum() == 0
    order = np.argsort(law)
    expected, seen = total * law[order], counts[order].astype(float)
    rare = int(np.searchsorted(np.cumsum(expected), 5.0)) + 1 if expected[0] < 5 else 0
    rare = max(rare, int((expected < 5).sum()))
    if rare:
        expected = np.concatenate(([expected[:rare].sum()], expected[rare:]))
        seen = np.concatenate(([seen[:rare].sum()], seen[rare:]))
    assert len(expected) > 2
    statistic = float(((seen - expected) ** 2 / expected).sum())
    return statistic / bound(len(expected) - 1)
