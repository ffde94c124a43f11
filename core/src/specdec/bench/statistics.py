"""The few statistics that a report needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import comb
from statistics import median

CONFIDENCE = 0.95
GRAM_LENGTH = 4


def median_with_bounds(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median and the bounds of its 95 % confidence interval.

    The bounds are order statistics: the r-th smallest and the r-th largest value, which enclose the median of
    whatever distribution the values come from with a probability that is binomial. Fewer than six values cannot give
    95 %; then the bounds are the smallest and the largest value.
    """
    ordered = sorted(values)
    size = len(ordered)
    rank = 1
    while 2 * rank < size and _miss(size, rank + 1) <= 1 - CONFIDENCE:
        rank += 1
    return median(ordered), ordered[rank - 1], ordered[size - rank]


def _miss(size: int, rank: int) -> float:
    """Return the probability that the median lies outside the r-th smallest and the r-th largest value."""
    return sum(comb(size, below) for below in range(rank)) / 2.0 ** (size - 1)


def distinct_ratio(texts: Iterable[Sequence[int]], length: int = GRAM_LENGTH) -> float:
    """Return distinct n-grams over all n-grams of token sequences; 1.0 if none is long enough to have one.

    Near 1 the text is varied; text that loops goes to 0, and drafts for it are easy to guess.
    """
    grams = [tuple(text[start : start + length]) for text in texts for start in range(len(text) - length + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0
