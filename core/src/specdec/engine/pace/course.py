"""How drafting goes for one request."""

from __future__ import annotations

_LIKE_OTHERS = 3.0
"""Expected tokens by which a request is taken to be like all others."""
_KEPT = 0.95
_TRIAL_STEPS = 3
_FIRST_REST, _LONGEST_REST = 12, 192
"""Steps of a rest; each one that is found right is followed by one twice as long."""
_TO_BEGIN, _TO_GO_ON = 1.03, 0.98
"""Drafting begins where it makes this many times the tokens a second of steps without drafts, and ends where it makes less."""


class Course:
    """Whether a request's drafts are tried, made or left out.

    Args:
        is_hopeful: whether it begins with a trial, else with a rest.
    """

    def __init__(self, *, is_hopeful: bool) -> None:
        self._kept = self._hoped = 0.0
        self._trial_left = _TRIAL_STEPS if is_hopeful else 0
        self._rest_length = _FIRST_REST
        self._rest_left = 0 if is_hopeful else _FIRST_REST
        self._is_drafting = is_hopeful

    @property
    def is_resting(self) -> bool:
        """Whether it is to have no draft now."""
        return self._rest_left > 0

    @property
    def is_tried(self) -> bool:
        """Whether it is to have a draft whatever that is worth."""
        return self._trial_left > 0

    @property
    def share(self) -> float:
        """What part of what was expected of its drafts has stood."""
        return (self._kept + _LIKE_OTHERS) / (self._hoped + _LIKE_OTHERS)

    def decide(self, worth: float) -> bool:
        """Return whether to draft, where that makes `worth` times the tokens a second; begin a rest if not."""
        self._is_drafting = worth >= (_TO_GO_ON if self._is_drafting else _TO_BEGIN)
        if not self._is_drafting:
            self._rest_left = self._rest_length
            self._rest_length = min(2 * self._rest_length, _LONGEST_REST)
        return self._is_drafting

    def rested(self) -> None:
        """Count a step without a draft."""
        if self._rest_left:
            self._rest_left -= 1
            self._trial_left = 0 if self._rest_left else _TRIAL_STEPS

    def drafted(self, hoped: float, num_accepted: int) -> None:
        """Count a step with a draft that was expected to bring `hoped` tokens."""
        self._trial_left = max(0, self._trial_left - 1)
        self._kept = _KEPT * self._kept + num_accepted
        self._hoped = _KEPT * self._hoped + hoped
