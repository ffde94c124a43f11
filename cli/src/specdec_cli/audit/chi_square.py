"""Chi-square test of whether two samples of tokens have the same distribution, and its detectable difference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from scipy.optimize import brentq  # type: ignore[import-untyped]  # published without types
from scipy.stats import chi2, ncx2  # type: ignore[import-untyped]  # published without types

LEAST = 10
"""Tokens that occur fewer times than this in both samples together count as one."""
POWER = 0.95


@dataclass(frozen=True)
class Homogeneity:
    """A chi-square statistic for equal distributions; independent statistics can be added."""

    statistic: float
    num_freedom: int
    """Degrees of freedom."""
    variation: float
    """Total variation between the samples."""

    def __add__(self, other: Homogeneity) -> Homogeneity:
        return Homogeneity(
            self.statistic + other.statistic,
            self.num_freedom + other.num_freedom,
            self.variation + other.variation,
        )

    @property
    def p_value(self) -> float:
        """Probability of a statistic at least as large if the distributions are equal; 1 if there is nothing to compare."""
        return float(chi2.sf(self.statistic, self.num_freedom)) if self.num_freedom else 1.0


NOTHING = Homogeneity(0.0, 0, 0.0)


def homogeneity(left: Sequence[Hashable], right: Sequence[Hashable], least: int = LEAST) -> Homogeneity:
    """Return the chi-square statistic of two samples against equal distributions.

    Args:
        left: tokens.
        right: tokens, the same number.
        least: tokens that occur fewer times in both together count as one.

    Raises:
        ValueError: if the samples differ in size.
    """
    if len(left) != len(right):
        raise ValueError(f"samples of {len(left)} and {len(right)} tokens: give as many of each")
    counts, others = Counter(left), Counter(right)
    pairs = [(counts[token], others[token]) for token in counts.keys() | others.keys()]
    kept = [pair for pair in pairs if sum(pair) >= least]
    rare = [pair for pair in pairs if sum(pair) < least]
    if rare:
        merged = (sum(a for a, _ in rare), sum(b for _, b in rare))
        if sum(merged) >= least or not kept:
            kept.append(merged)
        else:  # too few for their own category: merge with the least frequent one
            place = min(range(len(kept)), key=lambda index: sum(kept[index]))
            kept[place] = (kept[place][0] + merged[0], kept[place][1] + merged[1])
    return Homogeneity(
        sum((a - b) ** 2 / (a + b) for a, b in kept),
        len(kept) - 1,
        sum(abs(a - b) for a, b in kept) / (2 * len(left)),
    )


def detectable_variation(num_freedom: int, num_samples: int, level: float) -> float:
    """Return the total variation that would have been found with probability `POWER`, at most 1.

    For samples of n tokens each from distributions p and q, the noncentrality of the statistic is n times the sum of
    (p - q)^2 / (p + q). By the Cauchy-Schwarz inequality it is at least 2 n d^2 for every pair of distributions at total
    variation d. Over several prompts d is their mean, and n counts the samples of all prompts.

    Args:
        num_freedom: of the statistic.
        num_samples: of each side, over all prompts.
        level: p-values below it count as a difference.
    """
    if not num_freedom:
        return 1.0
    bound = float(chi2.isf(level, num_freedom))

    def missing(shift: float) -> float:
        return float(ncx2.sf(bound, num_freedom, shift)) - POWER

    highest = 4 * bound + 100
    shift = float(brentq(missing, 1e-9, highest))
    return min(1.0, math.sqrt(shift / (2 * num_samples)))
