"""When drafting stops, and when it is tried again."""

from __future__ import annotations

_TRIAL_STEPS = 3
_FIRST_REST, _LONGEST_REST = 16, 256
"""Steps of a rest; each one that is found right is followed by one twice as long."""
_TRIAL_COST = 0.03
"""What part of the time of a rest the trial behind it may cost."""
_TO_BEGIN, _TO_GO_ON = 1.03, 0.98
"""Drafting begins where it makes this many times the tokens a second of steps without drafts, and ends where it makes less."""


class Backoff:
    """Drafting, resting, or trying again."""

    def __init__(self) -> None:
        self._length = self._left = self._trial_left = 0
        self._is_trying = False

    @property
    def is_on(self) -> bool:
        """Whether there are to be no drafts now."""
        return self._left > 0

    @property
    def is_trying(self) -> bool:
        """Whether there are to be drafts whatever they bring."""
        return self._trial_left > 0

    def decide(self, speedup: float) -> bool:
        """Return whether to draft, where that makes `speedup` times the tokens a second; a rest begins or ends with it."""
        if self._trial_left:
            return True
        if speedup >= (_TO_BEGIN if self._left or self._is_trying else _TO_GO_ON):
            self._length = self._left = 0
            self._is_trying = False
        elif not self._left:
            fair = _TRIAL_STEPS * (1.0 / max(speedup, 1e-3) - 1.0) / _TRIAL_COST
            self._length = int(min(max(_FIRST_REST, 2 * self._length, fair), _LONGEST_REST))
            self._left = self._length
        return not self._left

    def rested(self) -> bool:
        """Count a step without drafts; returns whether a trial begins behind it."""
        if not self._left:
            return False
        self._left -= 1
        if self._left:
            return False
        self._trial_left, self._is_trying = _TRIAL_STEPS, True
        return True

    def drafted(self) -> None:
        """Count a step with drafts."""
        if self._trial_left:
            self._trial_left -= 1
