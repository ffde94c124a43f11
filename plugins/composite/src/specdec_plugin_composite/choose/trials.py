"""When a member that is not chosen is tried again."""

from __future__ import annotations

from collections.abc import Callable

_FIRST_STEPS = 3
"""Drafts of a member before it is compared; the first one warms up and is not measured."""
_TRIAL_STEPS = 2
_SHORTEST, _LONGEST = 16, 512
"""Steps without a member's drafts before it is tried; each trial after which it is not chosen doubles them."""
_TRIAL_COST = 0.02
"""Fraction of the time between two trials that a trial may cost."""


class Trials:
    """The trials of one member."""

    def __init__(self) -> None:
        self._left = _FIRST_STEPS
        self._idle = 0
        self._wait = _SHORTEST
        self.num_drafts = 0

    @property
    def is_due(self) -> bool:
        """Whether it drafts in this step, whatever is expected of it."""
        return self._left > 0

    @property
    def has_paid(self) -> bool:
        """Whether it was chosen since its last trial, or had none."""
        return self._wait == _SHORTEST

    def count(self, *, has_drafted: bool, is_chosen: bool, cost: Callable[[], float]) -> None:
        """Count a step.

        Args:
            has_drafted: whether it drafted.
            is_chosen: whether that was for what is expected of it.
            cost: returns how much longer a step with its draft takes than the best choice, as a multiple of that.
        """
        if has_drafted:
            self.num_drafts += 1
            self._idle = 0
            self._left = max(0, self._left - 1)
            if is_chosen:
                self._wait = _SHORTEST
            return
        self._idle += 1
        if self._idle >= self._wait and self._idle >= int(_TRIAL_STEPS * cost() / _TRIAL_COST):
            self._left, self._idle = _TRIAL_STEPS, 0
            self._wait = min(2 * self._wait, _LONGEST)
