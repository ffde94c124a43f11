"""The chi-square statistic of texts against their exact law."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping


def bound(degrees: int) -> float:
    """Return the threshold: ten standard deviations above the mean. Seeds are fixed, so results repeat."""
    return degrees + 10 * math.sqrt(2 * degrees)


def statistic(
    counts: Counter[tuple[int, ...]], law: Mapping[tuple[int, ...], float], total: int
) -> tuple[float, int]:
    """Return chi-square and its degrees of freedom; cells with less than five expected are put together.

    A text that the law does not know makes the statistic infinite.
    """
    if any(law.get(text, 0.0) == 0.0 for text in counts):
        return math.inf, max(1, len(law) - 1)
    cells: list[tuple[float, float]] = []
    rare_count, rare_mass = 0, 0.0
    for text, probability in law.items():
        if probability * total < 5:
            rare_count, rare_mass = rare_count + counts[text], rare_mass + probability
        else:
            cells.append((counts[text], probability * total))
    if rare_mass:
        cells.append((rare_count, rare_mass * total))
    return sum((got - want) ** 2 / want for got, want in cells), max(1, len(cells) - 1)
