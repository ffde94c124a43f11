"""Statistics of measurements; recent observations count most."""

from __future__ import annotations

from collections import deque

_DECAY = 0.98
"""Factor on the weight of past observations per new one; about fifty count."""
_DECAY_OVER_SUSPENSION = 0.1
_WINDOW = 11
"""Number of times that a median is taken of; outliers among them do not matter."""


class Mean:
    """A decayed mean.

    Args:
        decay: factor on the weight of past observations per new one.
    """

    def __init__(self, decay: float = _DECAY) -> None:
        self._decay = decay
        self.count = 0
        self._weight = self._sum = 0.0

    def observe(self, value: float) -> None:
        """Add one value."""
        self.count += 1
        self._weight = self._decay * self._weight + 1.0
        self._sum = self._decay * self._sum + value

    def fade(self) -> None:
        """Reduce the weight of past values."""
        self._weight *= _DECAY_OVER_SUSPENSION
        self._sum *= _DECAY_OVER_SUSPENSION

    @property
    def value(self) -> float:
        """The mean; 0 before the first value."""
        return self._sum / self._weight if self._weight else 0.0


class Median:
    """The median of the last few values."""

    def __init__(self) -> None:
        self.count = 0
        self._recent: deque[float] = deque(maxlen=_WINDOW)
        self._value: float | None = 0.0

    def observe(self, value: float) -> None:
        """Add one value."""
        self.count += 1
        self._recent.append(value)
        self._value = None

    @property
    def value(self) -> float:
        """The median, the lower one of two; 0 before the first value."""
        if self._value is None:
            self._value = sorted(self._recent)[(len(self._recent) - 1) // 2]
        return self._value


class ByDepth:
    """Seconds of steps, by the depth of their drafts."""

    def __init__(self) -> None:
        self._medians: dict[int, Median] = {}

    @property
    def is_known(self) -> bool:
        """Whether a step has been measured."""
        return bool(self._medians)

    def observe(self, depth: int, seconds: float) -> None:
        """Add one step."""
        if depth not in self._medians:
            self._medians[depth] = Median()
        self._medians[depth].observe(seconds)

    def upto(self, deepest: int, start: float) -> list[float]:
        """Return the seconds of depths 1 to `deepest`, linear between and beyond measured depths, and never decreasing.

        Args:
            deepest: the last depth.
            start: seconds at depth 0, where the line to the first measured depth begins.
        """
        found: list[float] = []
        for depth in sorted(self._medians):
            before, gap = (found[-1] if found else start), depth - len(found)
            seconds = max(self._medians[depth].value, before)
            found += [before + (seconds - before) * (i + 1) / gap for i in range(gap)]
        last = found[-1] if found else start
        rise = (last - start) / len(found) if found else 0.0
        return (found + [last + rise * (i + 1) for i in range(deepest - len(found))])[:deepest]
