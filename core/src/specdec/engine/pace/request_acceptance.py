"""How drafting goes for one request."""

from __future__ import annotations

from specdec.engine.pace.backoff import Backoff
from specdec.engine.pace.measured import Mean

_DECAY = 0.95
_DECAY_OVER_REST = 0.5
_ENOUGH = 12.0
"""Expected tokens after which a request says something about how different requests are."""
_NOISE = 1.1
"""Variance of the accepted drafted tokens, over their expected number, in requests that are all alike."""
_FIRST_WEIGHT, _LEAST_WEIGHT, _MOST_WEIGHT = 8.0, 4.0, 50.0


class Spread:
    """How different requests are, and so how much is to be made of what one has shown so far."""

    def __init__(self) -> None:
        self._variances = Mean(decay=0.97)

    def observe(self, accepted: float, expected: float) -> None:
        """Take in a request of whose `expected` tokens `accepted` were accepted."""
        self._variances.observe((accepted / expected - 1.0) ** 2 - _NOISE / expected)

    @property
    def weight(self) -> float:
        """Expected tokens by which a request is taken to be like all others: noise over variance (empirical Bayes)."""
        if self._variances.count < 2:
            return _FIRST_WEIGHT
        return min(max(_NOISE / max(self._variances.value, 1e-6), _LEAST_WEIGHT), _MOST_WEIGHT)


class RequestAcceptance:
    """What a request's own drafts bring.

    Args:
        spread: what is known of all requests; told of this one when it has shown enough.
    """

    def __init__(self, spread: Spread) -> None:
        self._spread = spread
        self._accepted = self._expected = 0.0
        self._is_counted = False
        self.backoff = Backoff()
        """Of a request in a batch that drafts."""

    @property
    def share(self) -> float:
        """Accepted drafted tokens as a share of those expected."""
        weight = self._spread.weight
        return (self._accepted + weight) / (self._expected + weight)

    def drafted(self, expected: float, num_accepted: int) -> None:
        """Count a step with a draft that was expected to bring `expected` tokens."""
        self.backoff.drafted()
        self._accepted = _DECAY * self._accepted + num_accepted
        self._expected = _DECAY * self._expected + expected
        if not self._is_counted and self._expected >= _ENOUGH:
            self._is_counted = True
            self._spread.observe(self._accepted, self._expected)

    def fade(self) -> None:
        """Trust what was seen less: it was before a rest."""
        self._accepted *= _DECAY_OVER_REST
        self._expected *= _DECAY_OVER_REST
