"""Acceptance of drafts by position."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_DECAY = 0.98
_DECAY_OVER_SUSPENSION = 0.7
_LIKE_BEFORE = 4.0
"""Weight, in observations, of the prior that a position is like the one before it."""
_FIRST_RATE = 0.6
_STEPS, _DRAFTED, _REACHED, _VERIFIED, _ACCEPTED = range(5)
"""Counts of a position: steps that could have had a node there, and those that had one; steps in which all nodes before it
were accepted, those of them with a node, and those of these that accepted it."""

Floats = npt.NDArray[np.float64]


class PositionAcceptance:
    """How often a draft has a token at each position, and how often that token is accepted."""

    def __init__(self) -> None:
        self._counts: Floats = np.zeros((5, 0))
        """Decayed counts `[5, positions]`."""

    def observe(self, limit: int, num_drafted: int, num_accepted: int) -> None:
        """Add one request's step: its maximum number of nodes, its drafted and its accepted ones."""
        more = limit - self._counts.shape[1]
        if more > 0:
            self._counts = np.pad(self._counts, ((0, 0), (0, more)))
        counts, reached = self._counts[:, :limit], min(limit, num_accepted + 1)
        counts *= _DECAY
        counts[_STEPS] += 1.0
        counts[_DRAFTED, :num_drafted] += 1.0
        counts[_REACHED, :reached] += 1.0
        counts[_VERIFIED, : min(reached, num_drafted)] += 1.0
        counts[_ACCEPTED, :num_accepted] += 1.0

    def fade(self) -> None:
        """Reduce the weight of past observations after a suspension."""
        self._counts *= _DECAY_OVER_SUSPENSION

    def gains(self, limit: int) -> Floats:
        """Return, for each of `limit` positions, how often its token is accepted."""
        gain, rate, found = 1.0, _FIRST_RATE, []
        for _, _, reached, verified, accepted in self._counts[:, :limit].T.tolist():
            rate = (accepted + _LIKE_BEFORE * rate) / (verified + _LIKE_BEFORE)
            gain *= rate * (verified + 1.0) / (reached + 1.0)
            found.append(gain)
        return np.array(found + [gain * rate**more for more in range(1, limit - len(found) + 1)])

    def rows(self, limit: int) -> Floats:
        """Return, for each of `limit` positions, how often a token is drafted there; 1 if unknown."""
        known = self._counts[:, :limit]
        found = np.ones(limit)
        found[: known.shape[1]] = (known[_DRAFTED] + 1.0) / (known[_STEPS] + 1.0)
        return found

    def expected(self, num_drafted: int) -> float:
        """Return the expected number of accepted tokens of a draft of `num_drafted` nodes."""
        counts = self._counts[:, :num_drafted]
        return float(((counts[_ACCEPTED] + 1e-9) / (counts[_VERIFIED] + 1e-9)).cumprod().sum())
