"""What has been measured, recent observations counting most."""

from __future__ import annotations

_KEPT = 0.98
"""What is left of an observation's weight after one more; about fifty count."""
_FEW = 8
_OUTLIER = 4.0
"""An observation that is above what was expected by more than this factor is taken to be this far above it."""


class Mean:
    """A decayed mean."""

    def __init__(self) -> None:
        self.count = 0
        self._weight = self._sum = 0.0

    def observe(self, value: float) -> None:
        """Take in one value."""
        self.count += 1
        self._weight = _KEPT * self._weight + 1.0
        self._sum = _KEPT * self._sum + value

    @property
    def value(self) -> float:
        """The mean; 0 before the first value."""
        return self._sum / self._weight if self._weight else 0.0


class SteadyMean(Mean):
    """A decayed mean that one odd value does not move far."""

    def observe(self, value: float) -> None:
        """Take in one value, no more than a few times what was expected."""
        super().observe(min(value, _OUTLIER * self.value) if self.count >= _FEW else value)


class Line:
    """A decayed straight line through what was measured, its base and slope never negative."""

    def __init__(self) -> None:
        self._x, self._y, self._xx, self._xy = Mean(), Mean(), Mean(), Mean()

    def observe(self, x: float, y: float) -> None:
        """Take in one point, x > 0."""
        if self._x.count >= _FEW:
            y = min(y, _OUTLIER * self.at(x))
        for mean, value in ((self._x, x), (self._y, y), (self._xx, x * x), (self._xy, x * y)):
            mean.observe(value)

    def at(self, x: float) -> float:
        """Return the height at `x`; while all points have one x the line goes through the origin."""
        base, slope = self.fit()
        return base + slope * x

    def fit(self) -> tuple[float, float]:
        """Return base and slope."""
        mean_x, mean_y, square = self._x.value, self._y.value, self._xx.value
        if not square:
            return 0.0, 0.0
        spread = square - mean_x**2
        if spread < 1e-6 * square:
            return 0.0, mean_y / mean_x
        slope = (self._xy.value - mean_x * mean_y) / spread
        if slope <= 0.0:
            return mean_y, 0.0
        base = mean_y - slope * mean_x
        return (base, slope) if base > 0.0 else (0.0, self._xy.value / square)
