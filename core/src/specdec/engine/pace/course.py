"""How drafting goes for one request."""

from __future__ import annotations

from specdec.engine.pace.rest import Rest

_LIKE_OTHERS = 5.0
"""Expected tokens by which a request is taken to be like all others."""
_KEPT = 0.95
_KEPT_OVER_REST = 0.5


class Course:
    """What a request's own drafts bring."""

    def __init__(self) -> None:
        self._kept = self._hoped = 0.0
        self.rest = Rest()
        """Of a request in a batch that drafts."""

    @property
    def share(self) -> float:
        """What part of what was expected of its drafts has stood."""
        return (self._kept + _LIKE_OTHERS) / (self._hoped + _LIKE_OTHERS)

    def drafted(self, hoped: float, num_accepted: int) -> None:
        """Count a step with a draft that was expected to bring `hoped` tokens."""
        self.rest.drafted()
        self._kept = _KEPT * self._kept + num_accepted
        self._hoped = _KEPT * self._hoped + hoped

    def fade(self) -> None:
        """Trust what was seen less: it was before a rest."""
        self._kept *= _KEPT_OVER_REST
        self._hoped *= _KEPT_OVER_REST
