"""Measured seconds of steps, by the number of verified nodes, and of drafts, by their depth.

Other work on the machine changes durations from one moment to the next, and what is not done at the moment is not measured. So
durations are kept as if the machine were always as fast: divided by its present slowness, which is how much longer steps take
than those with as many nodes took before. Only ratios of durations matter for a choice.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import exp, log

import numpy as np
from numpy.typing import NDArray

_WINDOW = 31
"""Number of recent durations that the median is taken of."""
_MOST_COUNTS = 64
_NUM_FIRST = 128
"""Number of counts that are looked up in a list."""
_SLOWNESS_STEP, _ENOUGH = 0.04, 3
"""How much the slowness changes in a step with a number of nodes that was measured so often: up or down by as much, so that
half of the steps are above it, as half of the durations are above their median."""
_ANEW_EVERY, _FEW = 8, 64
"""Number of durations after which the lines are drawn anew; each one while there are few."""
_FIRST_SLOPE = 0.04
"""Share of a step's time that one more row takes, before two numbers of rows were measured."""


class ByCount:
    """Medians of durations by a count, linear between measured counts, and never decreasing.

    Counts share one with those that have the same four highest binary digits: there are few, and each is measured often.

    Args:
        from_zero: whether 0 takes no time; otherwise lines are drawn through measured durations alone.
    """

    def __init__(self, *, from_zero: bool = False) -> None:
        self._from_zero = from_zero
        self._recent = array("d", [0.0]) * (_MOST_COUNTS * _WINDOW)
        self._num_measured = array("q", [0]) * _MOST_COUNTS
        self._medians = array("d", [0.0]) * _MOST_COUNTS
        self._table = np.zeros(_MOST_COUNTS)
        self._first = [0.0] * _NUM_FIRST
        """The seconds of the first counts."""
        self._num_all = self._num_new = 0

    @property
    def is_known(self) -> bool:
        """Whether anything was measured."""
        return self._num_all > 0

    def num_measured(self, count: int) -> int:
        """Return how often a count was measured."""
        return self._num_measured[_index(count)]

    def observe(self, count: int, seconds: float) -> None:
        """Add one duration."""
        index = _index(count)
        first = index * _WINDOW
        self._recent[first + self._num_measured[index] % _WINDOW] = seconds
        self._num_measured[index] += 1
        recent = self._recent[first : first + min(self._num_measured[index], _WINDOW)]
        self._medians[index] = sorted(recent)[(len(recent) - 1) // 2]
        self._num_all += 1
        self._num_new += 1

    def along(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the seconds of many counts at once."""
        self._refresh()
        return np.interp(counts, _LEAST, self._table)

    def at(self, count: int) -> float:
        """Return the seconds of a count; 0 before the first measurement."""
        self._refresh()
        return self._first[count] if count < _NUM_FIRST else float(np.interp(count, _LEAST, self._table))

    def _refresh(self) -> None:
        if self._num_new >= _ANEW_EVERY or (self._num_new and self._num_all < _FEW):
            self._num_new = 0
            self._fill()

    def _fill(self) -> None:
        """Write the seconds of every place: measured ones, and the lines through them."""
        indices = [index for index, count in enumerate(self._num_measured) if count]
        values = _rising([(self._medians[n], min(self._num_measured[n], _WINDOW)) for n in indices])
        counts = list(map(_least, indices))
        if self._from_zero and counts[0]:
            counts, values = [0, *counts], [0.0, *values]
        base = values[0]
        slope = _FIRST_SLOPE * base
        if len(counts) > 1:
            slope = (values[-1] - base) / (counts[-1] - counts[0])
        self._table = np.interp(_LEAST, counts, values)
        self._table += slope * np.maximum(_LEAST - counts[-1], 0)
        fewer = np.maximum(counts[0] - _LEAST, 0)
        self._table -= np.minimum(_FIRST_SLOPE * base * fewer, 0.5 * base)
        self._first = np.interp(_FIRST, _LEAST, self._table).tolist()


class StepCosts:
    """Seconds of a step without drafting, by batch size and nodes, and of drafting, by proposer and depth."""

    def __init__(self) -> None:
        self._rest: dict[int, ByCount] = {}
        self._drafting: dict[int, ByCount] = {}
        self._slowness = 0.0
        """Logarithm of how much longer steps take now than steps like them took before."""

    def observe_step_without_draft(self, batch_size: int, num_nodes: int, seconds: float) -> None:
        """Add the duration of one step but its drafting."""
        rest = self.rest(batch_size)
        if rest.num_measured(num_nodes) >= _ENOUGH:
            is_slower = log(seconds / rest.at(num_nodes)) > self._slowness
            self._slowness += _SLOWNESS_STEP if is_slower else -_SLOWNESS_STEP
        rest.observe(num_nodes, self.usual(seconds))

    def observe_draft(self, key: int, depth: int, seconds: float) -> None:
        """Add the duration of one draft; `key` tells those apart whose durations differ."""
        self.drafting(key).observe(depth, self.usual(seconds))

    def usual(self, seconds: float) -> float:
        """Return what a duration would be on a machine that is as fast as before."""
        return seconds * exp(-self._slowness)

    def drafting(self, key: int) -> ByCount:
        """Return the seconds of drafts by their depth."""
        if key not in self._drafting:
            self._drafting[key] = ByCount(from_zero=True)
        return self._drafting[key]

    def rest(self, batch_size: int) -> ByCount:
        """Return the seconds of steps but their drafting, by the nodes of the batch; sizes up to a power of two are alike."""
        size = 1 << max(batch_size - 1, 0).bit_length()
        if size not in self._rest:
            self._rest[size] = ByCount()
        return self._rest[size]


def _rising(weighted: Sequence[tuple[float, float]]) -> list[float]:
    """Return the never decreasing values that are nearest to the given ones, each with its weight: isotonic regression."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, number of values
    for value, weight in weighted:
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, m, i), (b, n, j) = blocks[-2:]
            blocks[-2:] = [((m * a + n * b) / (m + n), m + n, i + j)]
    return [mean for mean, _, count in blocks for _ in range(count)]


def _index(count: int) -> int:
    """Return the place of a count: 16 counts have their own, then 8 places share each doubling."""
    shift = max(0, count.bit_length() - 4)
    return min(8 * shift + (count >> shift), _MOST_COUNTS - 1)


def _least(index: int) -> int:
    """Return the least count of a place."""
    shift = max(0, index // 8 - 1)
    return (index - 8 * shift) << shift


_LEAST = np.array([_least(index) for index in range(_MOST_COUNTS)])
_FIRST = np.arange(_NUM_FIRST)
