"""Statistics for reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import comb
from statistics import median

CONFIDENCE = 0.95
GRAM_LENGTH = 4


def median_with_bounds(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median and the bounds of its 95 % confidence interval.

    The bounds are order statistics, the r-th smallest and the r-th largest value. For any distribution of the values
    they enclose its median with a probability given by the binomial distribution. Fewer than six values cannot give
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
    """Return the ratio of distinct n-grams to all n-grams of token sequences; 1.0 if all are too short for one.

    A value near 1 means varied text. Repetitive text goes to 0 and is easy to draft for.
    """
    grams = [tuple(text[start : start + length]) for text in texts for start in range(len(text) - length + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0
