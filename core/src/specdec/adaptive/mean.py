"""A mean of which recent observations count most."""

from __future__ import annotations

_DECAY = 0.98
"""Factor on the weight of past observations per new one; about fifty count."""
_DECAY_OVER_SUSPENSION = 0.1


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
