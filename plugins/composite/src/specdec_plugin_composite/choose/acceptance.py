"""How often the nodes of a member's drafts are accepted."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from specdec.adaptive import RequestAcceptance, Spread
from specdec_plugin_composite.offer import Offer

_DECAY = 0.99
_PRIOR_WEIGHT = 4.0
"""Weight, in observations, of the member's own confidence."""
_LIKE_BEFORE = 8.0
"""The same of the depth before, where there is no confidence."""
_FIRST_RATE, _FIRST_RATE_OF_TARGET = 0.6, 0.95
"""Before a node was seen; of a form of the target it is high."""
_UNSEEN_WEIGHT = 1.0
"""The same of drafts that are made only if they are chosen: few are seen before that."""
_CONFIDENCES = 8
"""Number of equal intervals of confidence that are told apart."""
_DEEPEST, _LONGEST = 12, 4
"""Depths, and lengths of drafts, that are told apart: methods that copy draft more where they are surer."""
_NUM_KEYS = _DEEPEST + 3 * _CONFIDENCES * _LONGEST


class Acceptance:
    """Acceptance of one member's nodes, given their parents', by depth and confidence, and of its requests beside that.

    All drafts that were scored count, those that were not verified too: the text says what would have been accepted.

    Args:
        is_unseen: whether its drafts are made only if they are chosen.
        is_target: whether the member is a form of the target.
    """

    def __init__(self, *, is_unseen: bool = False, is_target: bool = False) -> None:
        self._first_rate = _FIRST_RATE_OF_TARGET if is_target else _FIRST_RATE
        self._weight = _UNSEEN_WEIGHT if is_unseen else _PRIOR_WEIGHT
        self._tried, self._accepted = array("d", [0.0]) * _NUM_KEYS, array("d", [0.0]) * _NUM_KEYS
        self._spread = Spread()
        self._requests: dict[str, RequestAcceptance] = {}
        self._mean = 1.0
        self._by_depth: list[float] = []
        """Rates of depths without confidence, as far as they were asked for since the last observation."""

    def gain_of_tree(self, request_id: str) -> float:
        """Return the expected number of accepted tokens of a whole tree that is not drafted yet."""
        return self.share(request_id) * self._mean

    def gains(self, request_id: str, offer: Offer) -> list[float]:
        """Return the expected number of accepted tokens among the first 1, 2, ... nodes of an offer."""
        found: list[float] = []
        depths: list[int] = []
        total, gains = 0.0, list[float]()
        share = self.share(request_id)
        for node, parent in enumerate(offer.parents):
            depths.append(1 if parent < 0 else depths[parent] + 1)
            confidence = None if offer.confidence is None else offer.confidence[node]
            rate = self._rate(depths[node], confidence, len(offer.parents))
            found.append(rate * (1.0 if parent < 0 else found[parent]))
            total += found[node]
            gains.append(min(share * total, float(depths[node]) if offer.is_chain else total * share))
        return gains

    def gains_by_depth(self, request_id: str, deepest: int) -> list[float]:
        """Return the expected number of accepted tokens of a chain of 1, 2, ... tokens that is not drafted yet."""
        share, reached, total, gains = self.share(request_id), 1.0, 0.0, list[float]()
        for depth, rate in enumerate(self._rates(deepest), 1):
            reached *= rate
            total += reached
            gains.append(min(share * total, float(depth)))
        return gains

    def observe(self, request_id: str, offer: Offer, path: Sequence[int], expected: float) -> None:
        """Record a draft of which the nodes `path` are in the text, where `expected` were expected."""
        self._mean = _DECAY * self._mean + (1 - _DECAY) * len(path)
        self._by_depth = []
        for key in range(_DEEPEST):  # what failed, and is therefore not tried, is forgotten in time
            self._tried[key] *= _DECAY
            self._accepted[key] *= _DECAY
        accepted, depths = set(path), list[int]()
        for node, parent in enumerate(offer.parents):
            depths.append(1 if parent < 0 else depths[parent] + 1)
            if parent < 0 or parent in accepted:
                confidence = None if offer.confidence is None else offer.confidence[node]
                self._count(_key(depths[node]), is_accepted=node in accepted)
                if confidence is not None:
                    key = _key(depths[node], confidence, len(offer.parents))
                    self._tried[key] *= _DECAY
                    self._accepted[key] *= _DECAY
                    self._count(key, is_accepted=node in accepted)
        if request_id not in self._requests:
            self._requests[request_id] = RequestAcceptance(self._spread)
        self._requests[request_id].drafted(expected, len(path))

    def share(self, request_id: str) -> float:
        """Return a request's accepted tokens as a share of those expected of all requests."""
        request = self._requests.get(request_id)
        return 1.0 if request is None else request.share

    def forget(self, request_ids: Sequence[str]) -> None:
        """Drop what is known of requests."""
        for request_id in request_ids:
            self._requests.pop(request_id, None)
        self._requests = dict(self._requests)  # without the memory of those that were dropped

    def _rate(self, depth: int, confidence: float | None, length: int) -> float:
        if confidence is None:
            return self._rates(depth)[depth - 1]
        return self._of(_key(depth, confidence, length), confidence, self._weight)

    def _rates(self, deepest: int) -> list[float]:
        """Return the rates of depths 1 to `deepest`, each expected to be like the one before."""
        rates = self._by_depth
        while len(rates) < deepest:
            prior, weight = (rates[-1], _LIKE_BEFORE) if rates else (self._first_rate, self._weight)
            rates.append(self._of(_key(len(rates) + 1), prior, weight))
        return rates[:deepest]

    def _of(self, key: int, prior: float, weight: float) -> float:
        return (self._accepted[key] + weight * prior) / (self._tried[key] + weight)

    def _count(self, key: int, *, is_accepted: bool) -> None:
        self._tried[key] += 1.0
        self._accepted[key] += is_accepted


def _key(depth: int, confidence: float | None = None, length: int = 0) -> int:
    """Return the place of the counts of a depth, or of a depth up to 3, a confidence, and a length of the whole draft."""
    if confidence is None:
        return min(depth, _DEEPEST) - 1
    surety = min(int(_CONFIDENCES * confidence), _CONFIDENCES - 1)
    return _DEEPEST + ((min(depth, 3) - 1) * _LONGEST + min(length, _LONGEST) - 1) * _CONFIDENCES + surety
