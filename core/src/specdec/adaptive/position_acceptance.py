"""Acceptance of drafts by position."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_DECAY = 0.98
_DECAY_OVER_SUSPENSION = 0.7
_LIKE_BEFORE = 4.0
"""Weight, in observations, of the prior that a position is like the one before it."""
_FIRST_RATE = 0.6


class _Position:
    """Decayed counts of steps that could have had a node at one draft position."""

    __slots__ = ("accepted", "drafted", "reached", "steps", "verified")

    def __init__(self) -> None:
        self.steps = self.drafted = 0.0
        """All such steps; those that had a node."""
        self.reached = self.verified = self.accepted = 0.0
        """Steps in which all nodes before it were accepted; those of them with a node; those of these that
        accepted it."""

    def fade(self, decay: float) -> None:
        self.steps *= decay
        self.drafted *= decay
        self.reached *= decay
        self.verified *= decay
        self.accepted *= decay


class PositionAcceptance:
    """How often a draft has a token at each position, and how often that token is accepted."""

    def __init__(self) -> None:
        self._positions: list[_Position] = []

    def observe(self, limit: int, num_drafted: int, num_accepted: int) -> None:
        """Add one request's step: its maximum number of nodes, its drafted and its accepted ones."""
        while len(self._positions) < limit:
            self._positions.append(_Position())
        for number, position in enumerate(self._positions[:limit]):
            position.fade(_DECAY)
            position.steps += 1.0
            if number < num_drafted:
                position.drafted += 1.0
            if number <= num_accepted:
                position.reached += 1.0
                position.verified += number < num_drafted
                position.accepted += number < num_accepted

    def fade(self) -> None:
        """Reduce the weight of past observations after a suspension."""
        for position in self._positions:
            position.fade(_DECAY_OVER_SUSPENSION)

    def gains(self, limit: int) -> Floats:
        """Return, for each of `limit` positions, how often its token is accepted."""
        gain, rate, found = 1.0, _FIRST_RATE, []
        for position in self._positions[:limit]:
            rate = (position.accepted + _LIKE_BEFORE * rate) / (position.verified + _LIKE_BEFORE)
            gain *= rate * (position.verified + 1.0) / (position.reached + 1.0)
            found.append(gain)
        return np.array(found + [gain * rate**more for more in range(1, limit - len(found) + 1)])

    def rows(self, limit: int) -> Floats:
        """Return, for each of `limit` positions, how often a token is drafted there; 1 if unknown."""
        known = [(position.drafted + 1.0) / (position.steps + 1.0) for position in self._positions[:limit]]
        return np.array(known + [1.0] * (limit - len(known)))

    def expected(self, num_drafted: int) -> float:
        """Return the expected number of accepted tokens of a draft of `num_drafted` nodes."""
        gain, total = 1.0, 0.0
        for position in self._positions[:num_drafted]:
            gain *= (position.accepted + 1e-9) / (position.verified + 1e-9)
            total += gain
        return total
