"""Acceptance of one request's drafts."""

from __future__ import annotations

from specdec.adaptive.backoff import Backoff
from specdec.adaptive.mean import Mean

_DECAY = 0.95
_DECAY_OVER_SUSPENSION = 0.5
_ENOUGH = 12.0
"""Number of expected tokens after which a request counts in `Spread`."""
_NOISE = 1.1
"""Variance of the number of accepted tokens over its expectation, if all requests are alike."""
_FIRST_WEIGHT, _LEAST_WEIGHT, _MOST_WEIGHT = 8.0, 4.0, 50.0


class Spread:
    """Spread of acceptance between requests; decides how much one request's observations count."""

    def __init__(self) -> None:
        self._variances = Mean(decay=0.97)

    def observe(self, accepted: float, expected: float) -> None:
        """Add a request with `accepted` accepted tokens where `expected` were expected."""
        self._variances.observe((accepted / expected - 1.0) ** 2 - _NOISE / expected)

    @property
    def weight(self) -> float:
        """Expected tokens that the prior of equal requests counts for: noise / variance (empirical Bayes)."""
        if self._variances.count < 2:
            return _FIRST_WEIGHT
        return min(max(_NOISE / max(self._variances.value, 1e-6), _LEAST_WEIGHT), _MOST_WEIGHT)


class RequestAcceptance:
    """Acceptance of a request's own drafts.

    Args:
        spread: spread over all requests; this one is added after enough observations.
    """

    def __init__(self, spread: Spread) -> None:
        self._spread = spread
        self._accepted = self._expected = 0.0
        self._is_counted = False
        self.backoff = Backoff()
        """Backoff of this request alone, while its batch drafts."""

    @property
    def share(self) -> float:
        """Accepted drafted tokens as a share of those expected."""
        weight = self._spread.weight
        return (self._accepted + weight) / (self._expected + weight)

    def drafted(self, expected: float, num_accepted: int) -> None:
        """Count a step with a draft of which `expected` tokens were expected to be accepted."""
        self.backoff.count_drafted_step(has_nodes=expected > 0.0)
        self._accepted = _DECAY * self._accepted + num_accepted
        self._expected = _DECAY * self._expected + expected
        if not self._is_counted and self._expected >= _ENOUGH:
            self._is_counted = True
            self._spread.observe(self._accepted, self._expected)

    def fade(self) -> None:
        """Reduce the weight of past observations after a suspension."""
        self._accepted *= _DECAY_OVER_SUSPENSION
        self._expected *= _DECAY_OVER_SUSPENSION
