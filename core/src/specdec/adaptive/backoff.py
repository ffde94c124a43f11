"""When drafting stops, and when it is tried again."""

from __future__ import annotations

_TRIAL_STEPS, _MOST_TRIAL_STEPS = 3, 6
"""Number of steps with nodes in a trial, and of all its steps: many proposers often find nothing to draft."""
_FIRST_SUSPENSION, _LONGEST_SUSPENSION = 16, 256
"""Number of steps of a suspension; each one that proves right is followed by one twice as long."""
_MOST_SUSPENDED = 2048
"""The most steps of one whose length follows from `_TRIAL_COST`: a trial may take many times as long as a step."""
_TRIAL_COST = 0.015
"""Fraction of the time of a suspension that the trial after it may cost."""
_CHEAP = 2 * _FIRST_SUSPENSION
"""A trial costs at most about one step, if that allows so short a suspension."""
_TO_BEGIN, _TO_GO_ON = 1.03, 0.99
"""Drafting begins at the first speedup over steps without drafts, and ends below the second."""


class Backoff:
    """State of drafting: on, suspended, or tried again."""

    def __init__(self) -> None:
        self._length = self._left = self._trial_left = self._trial_steps_left = 0
        self._is_trying = False

    @property
    def is_suspended(self) -> bool:
        """Whether drafting is suspended now."""
        return self._left > 0

    @property
    def num_left(self) -> int:
        """Number of steps for which it is suspended."""
        return self._left

    @property
    def is_trying(self) -> bool:
        """Whether a trial runs: drafts are made whatever their speedup."""
        return self._trial_left > 0

    def decide(self, speedup: float, *, is_other: bool = False) -> bool:
        """Return whether to draft, given its `speedup` of throughput; may begin or end a suspension.

        For an `is_other` request than the one that was suspended a trial begins at once, if it costs about a step or less: its
        text may be copied.
        """
        if self._trial_left:
            return True
        if is_other and self._length - self._left >= _FIRST_SUSPENSION and _fair(speedup) <= _CHEAP:
            self.try_again()
            return True
        if speedup >= (_TO_BEGIN if self._left or self._is_trying else _TO_GO_ON):
            self._length = self._left = 0
            self._is_trying = False
        elif not self._left:
            longer = min(max(_FIRST_SUSPENSION, 2 * self._length), _LONGEST_SUSPENSION)
            self._length = int(max(longer, min(_fair(speedup), _MOST_SUSPENDED)))
            self._left = self._length
        return not self._left

    def count_plain_step(self) -> bool:
        """Count a step without drafts; returns whether a trial begins after it."""
        if not self._left:
            return False
        self._left -= 1
        if self._left:
            return False
        self.try_again()
        return True

    def try_again(self) -> None:
        """End a suspension with a trial."""
        self._left, self._trial_left, self._is_trying = 0, _TRIAL_STEPS, True
        self._trial_steps_left = _MOST_TRIAL_STEPS

    def count_drafted_step(self, *, has_nodes: bool) -> None:
        """Count a step in which drafts were wanted."""
        if self._trial_left:
            self._trial_steps_left -= 1
            self._trial_left = self._trial_left - has_nodes if self._trial_steps_left else 0


def _fair(speedup: float) -> float:
    """Return the steps of a suspension after which a trial at this speedup costs `_TRIAL_COST` of them."""
    return _TRIAL_STEPS * (1.0 / max(speedup, 1e-3) - 1.0) / _TRIAL_COST
