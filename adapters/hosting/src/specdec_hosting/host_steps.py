"""What the steps of another engine cost, for `adaptive`."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.adaptive import MeasuredStep
from specdec.engine import Sequence, Speculation, Step


@dataclass(frozen=True)
class _Proposed:
    """One `propose` call, whose drafts the host's next step verifies."""

    limits: dict[Sequence, int]
    """Maximum number of nodes of each request."""
    may_draft: bool
    """Whether the configuration allows a draft for any request."""
    num_running: int
    propose_s: float
    end: float


class HostSteps:
    """Measures a host's steps: one lasts from one `propose` call to the next.

    It counts only if a request ran through all of it, which leaves out the host's idle time.

    Args:
        speculation: is told what a step cost and what came of its drafts.
    """

    def __init__(self, speculation: Speculation) -> None:
        self._speculation = speculation
        self._last: _Proposed | None = None
        self._emitted: dict[Sequence, tuple[int, int]] = {}
        self._num_prompt_rows: int | None = None

    def note_emitted(self, sequence: Sequence, num_drafted: int, num_accepted: int) -> None:
        """Record the result of the host's step for one request."""
        self._emitted[sequence] = num_drafted, num_accepted

    def note_prompt_rows(self, num_prompt_rows: int | None) -> None:
        """Record the number of prompt rows in the host's step; None if the host does not report it."""
        self._num_prompt_rows = num_prompt_rows

    def begin(self, step: Step, num_running: int, propose_s: float, now: float) -> None:
        """Begin a step after a `propose` call of `propose_s` seconds."""
        limits = {row.sequence: row.cap for row in step.rows}
        self._last = _Proposed(limits, step.may_draft, num_running, propose_s, now)

    def end(self, now: float) -> None:
        """End the step, if there is one."""
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
        self._speculation.observe_measured(
            MeasuredStep(
                list(emitted),
                [last.limits.get(sequence, 0) for sequence in emitted],
                drafted,
                [num_accepted for _, num_accepted in emitted.values()],
                last.propose_s,
                now - last.end,
                num_prompt_rows=num_prompt_rows,
                num_rows=(num_prompt_rows or 0) + len(emitted) + sum(drafted),
            ),
            may_draft=last.may_draft,
        )
