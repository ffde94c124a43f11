"""`adaptive` in the loop of another engine."""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import dataclass

from specdec.engine.pace import Pace
from specdec.engine.sequence import Sequence


@dataclass(frozen=True)
class _Proposed:
    """One `propose` call, whose drafts the host's next step verifies."""

    limits: dict[Sequence, int]
    """Maximum number of nodes of each request."""
    num_running: int
    propose_s: float
    end: float


class HostPace:
    """Reports the cost of a host's steps and the gain of its drafts to a `Pace`.

    A step of the host lasts from one `propose` call to the next. It counts only if a request ran through all
    of it, which leaves out the host's idle time.

    Args:
        pace: decides how much is drafted.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._last: _Proposed | None = None
        self._emitted: dict[Sequence, tuple[int, int]] = {}
        self._num_prompt_rows: int | None = None

    @property
    def is_suspended(self) -> bool:
        """Whether the step drafts nothing, so that the proposer need not be called."""
        return self._pace.is_suspended

    @property
    def num_suspended(self) -> int:
        """Number of steps without drafts in which drafts were allowed."""
        return self._pace.num_suspended

    @property
    def num_shortened(self) -> int:
        """Number of steps whose drafts were limited to fewer than k nodes."""
        return self._pace.num_shortened

    def note_emitted(self, sequence: Sequence, num_drafted: int, num_accepted: int) -> None:
        """Record the result of the host's step for one request."""
        self._emitted[sequence] = num_drafted, num_accepted

    def note_prompt_rows(self, num_prompt_rows: int | None) -> None:
        """Record the number of prompt rows in the host's step; None if the host does not report it."""
        self._num_prompt_rows = num_prompt_rows

    def begin(self, running: Several[Sequence], most: int, now: float) -> None:
        """End the host's last step and begin the next one.

        Args:
            running: requests that the host's next step computes.
            most: maximum number of nodes that the configuration allows for one of them.
            now: time, in seconds.
        """
        self._observe(now)
        self._pace.begin(running, most)

    def limit(self, sequence: Sequence, most: int) -> int:
        """Return the maximum number of nodes for one request, at most the `most` that are allowed."""
        return self._pace.limit(sequence, most)

    def end(self, limits: dict[Sequence, int], num_running: int, started: float, now: float) -> None:
        """Record a `propose` call that lasted from `started` to `now`."""
        self._last = _Proposed(limits, num_running, now - started, now)

    def _observe(self, now: float) -> None:
        last, emitted = self._last, self._emitted
        num_prompt_rows = self._num_prompt_rows
        self._last, self._emitted, self._num_prompt_rows = None, {}, None
        if last is None or not any(sequence in emitted for sequence in last.limits):
            return
        has_new = any(sequence not in last.limits for sequence in emitted)
        if num_prompt_rows is None and not has_new:
            num_prompt_rows = 0
        if sum(sequence in emitted for sequence in last.limits) < last.num_running:
            num_prompt_rows = None  # one of them is still in prefill, or ended before its step
        drafted = [num_drafted for num_drafted, _ in emitted.values()]
        self._pace.observe(
            list(emitted),
            [last.limits.get(sequence, 0) for sequence in emitted],
            drafted,
            [num_accepted for _, num_accepted in emitted.values()],
            last.propose_s,
            now - last.end,
            num_prompt_rows=num_prompt_rows,
            num_rows=(num_prompt_rows or 0) + len(emitted) + sum(drafted),
        )
