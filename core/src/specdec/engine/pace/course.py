"""How drafting goes for one request."""

from __future__ import annotations

from specdec.engine.pace.measured import Mean
from specdec.engine.pace.rest import Rest

_KEPT = 0.95
_KEPT_OVER_REST = 0.5
_ENOUGH = 12.0
"""Expected tokens after which a request says something about how different requests are."""
_NOISE = 1.1
"""Variance of the tokens that stand, over their expected number, in requests that are all alike."""
_FIRST_WEIGHT, _LEAST_WEIGHT, _MOST_WEIGHT = 8.0, 4.0, 50.0


class Spread:
    """How different requests are, and so how much is to be made of what one has shown so far."""

    def __init__(self) -> None:
        self._variances = Mean(kept=0.97)

    def observe(self, kept: float, hoped: float) -> None:
        """Take in a request of whose expected tokens `kept` stood."""
        self._variances.observe((kept / hoped - 1.0) ** 2 - _NOISE / hoped)

    @property
    def weight(self) -> float:
        """Expected tokens by which a request is taken to be like all others: noise over variance (empirical Bayes)."""
        if self._variances.count < 2:
            return _FIRST_WEIGHT
        return min(max(_NOISE / max(self._variances.value, 1e-6), _LEAST_WEIGHT), _MOST_WEIGHT)


class Course:
    """What a request's own drafts bring.

    Args:
        spread: what is known of all requests; told of this one when it has shown enough.
    """

    def __init__(self, spread: Spread) -> None:
        self._spread = spread
        self._kept = self._hoped = 0.0
        self._is_counted = False
        self.rest = Rest()
        """Of a request in a batch that drafts."""

    @property
    def share(self) -> float:
        """What part of what was expected of its drafts has stood."""
        weight = self._spread.weight
        return (self._kept + weight) / (self._hoped + weight)

    def drafted(self, hoped: float, num_accepted: int) -> None:
        """Count a step with a draft that was expected to bring `hoped` tokens."""
        self.rest.drafted()
        self._kept = _KEPT * self._kept + num_accepted
        self._hoped = _KEPT * self._hoped + hoped
        if not self._is_counted and self._hoped >= _ENOUGH:
            self._is_counted = True
            self._spread.observe(self._kept, self._hoped)

    def fade(self) -> None:
        """Trust what was seen less: it was before a rest."""
        self._kept *= _KEPT_OVER_REST
        self._hoped *= _KEPT_OVER_REST
