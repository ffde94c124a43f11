"""What the places of drafts have brought."""

from __future__ import annotations

_KEPT = 0.98
_KEPT_OVER_REST = 0.7
_LIKE_BEFORE = 4.0
"""Observations by which a place is taken to be like the one before it."""
_FIRST_RATE = 0.6


class _Place:
    """Decayed counts of steps that could have had a node at one place."""

    __slots__ = ("came", "drafted", "reached", "stood", "tried")

    def __init__(self) -> None:
        self.tried = self.drafted = 0.0
        """All of them; those that had one."""
        self.came = self.reached = self.stood = 0.0
        """Those in which all nodes before it stood; of these those that had one; of these those in which it stood."""

    def fade(self, kept: float) -> None:
        self.tried *= kept
        self.drafted *= kept
        self.came *= kept
        self.reached *= kept
        self.stood *= kept


class Places:
    """How often a draft goes on, and how often it stands, place after place."""

    def __init__(self) -> None:
        self._places: list[_Place] = []

    def observe(self, limit: int, num_drafted: int, num_accepted: int) -> None:
        """Take in one request's step: nodes it could have had, had, and kept."""
        while len(self._places) < limit:
            self._places.append(_Place())
        for number, place in enumerate(self._places[:limit]):
            place.fade(_KEPT)
            place.tried += 1.0
            place.drafted += number < num_drafted
            if number <= num_accepted:
                place.came += 1.0
                place.reached += number < num_drafted
                place.stood += number < num_accepted

    def fade(self) -> None:
        """Let what comes now count for more: what was seen was before a rest."""
        for place in self._places:
            place.fade(_KEPT_OVER_REST)

    def gains(self, limit: int) -> list[float]:
        """Return, for each of `limit` places, how often its token stands."""
        gain, rate, found = 1.0, _FIRST_RATE, []
        for place in self._places[:limit]:
            rate = (place.stood + _LIKE_BEFORE * rate) / (place.reached + _LIKE_BEFORE)
            gain *= rate * (place.reached + 1.0) / (place.came + 1.0)
            found.append(gain)
        return found + [gain * rate**more for more in range(1, limit - len(found) + 1)]

    def rows(self, limit: int) -> list[float]:
        """Return, for each of `limit` places, how often it is drafted; 1 where that is not known."""
        known = [(place.drafted + 1.0) / (place.tried + 1.0) for place in self._places[:limit]]
        return known + [1.0] * (limit - len(known))

    def expected(self, num_drafted: int) -> float:
        """Return how many tokens of a draft of `num_drafted` nodes stand as a rule."""
        gain, total = 1.0, 0.0
        for place in self._places[:num_drafted]:
            gain *= (place.stood + 1e-9) / (place.reached + 1e-9)
            total += gain
        return total
