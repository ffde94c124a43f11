"""What the places of drafts have brought."""

from __future__ import annotations

_KEPT = 0.98


class Places:
    """For each place of a draft, how often it is drafted and how often its token stands, of the steps that could reach it."""

    def __init__(self) -> None:
        self._tried: list[float] = []
        self._drafted: list[float] = []
        self._stood: list[float] = []

    def observe(self, limit: int, num_drafted: int, num_accepted: int) -> None:
        """Take in one request's step: nodes it could have had, had, and kept."""
        columns = (self._tried, limit), (self._drafted, num_drafted), (self._stood, num_accepted)
        for column, count in columns:
            column += [0.0] * (limit - len(column))
            for place in range(limit):
                column[place] = _KEPT * column[place] + (place < count)

    def gains(self, limit: int) -> list[float]:
        """Return, for each of `limit` places, how often its token stands; 1 where that is not known."""
        return self._shares(self._stood, limit)

    def rows(self, limit: int) -> list[float]:
        """Return, for each of `limit` places, how often it is drafted; 1 where that is not known."""
        return self._shares(self._drafted, limit)

    def _shares(self, column: list[float], limit: int) -> list[float]:
        known = [a / b for a, b in zip(column[:limit], self._tried, strict=False)]
        return known + [1.0] * (limit - len(known))
