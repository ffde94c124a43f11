"""When a proposer is asked for a step while the target runs it already."""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from typing import Self

from specdec.engine.sequence import Sequence
from specdec.engine.speculation.speculation import Speculation
from specdec.engine.step import Row, Step
from specdec.interfaces.capability import NEEDED_CAPABILITIES

_FEW = 4
"""Number of steps of a kind that are measured before kinds are compared."""
_OTHER_EVERY = 64
"""After so many steps of the better kind comes one of the other, so that its time stays known."""
_WARM_UP = 3
"""Number of steps that are not measured."""
_CHEAP = 0.1
"""The most that a proposer takes of a step if it may be asked late: a dear one is left to `adaptive`, which may not ask it."""
_MOST_COUNTED = 32
"""Number of observations of which a mean consists, about."""


@dataclass
class _Mean:
    """A mean of which recent observations count most."""

    value: float = 0.0
    count: int = 0

    def observe(self, value: float) -> None:
        self.count += 1
        self.value += (value - self.value) / min(self.count, _MOST_COUNTED)


@dataclass
class _Measured:
    """What is known of steps of about one batch size."""

    late_s: _Mean = field(default_factory=_Mean)
    in_time_s: _Mean = field(default_factory=_Mean)
    found: _Mean = field(default_factory=_Mean)
    accepted: _Mean = field(default_factory=_Mean)
    asking_s: _Mean = field(default_factory=_Mean)
    num_steps: int = 0
    num_since: int = 0

    @property
    def is_cheap(self) -> bool:
        """Whether asking the proposer hardly takes time."""
        return self.asking_s.value <= _CHEAP * self.in_time_s.value


class LateLooks:
    """Decides whether a step without drafts is launched before the tokens of the step before it are read.

    A proposer on the host needs these tokens to draft, and often finds nothing: then the device has waited for nothing. With
    a late look the step is launched without a draft, and the proposer is asked meanwhile. If it has one, nothing more is
    launched ahead, and it is asked again in time; a draft begins one token later then. A late look pays if the time that it
    saves is more than that of this token, which an earlier draft would have had accepted, times the chance that there is one.

    Args:
        speculation: of the engine.
    """

    def __init__(self, speculation: Speculation) -> None:
        self._speculation = speculation
        self._measured: dict[int, _Measured] = {}
        self._had_none = False  # whether the proposer was asked in time for the last step, and had nothing

    @classmethod
    def of(cls, speculation: Speculation | None) -> Self | None:
        """Return those of a proposer that needs nothing but committed ids; None for any other, or none."""
        if speculation is None or speculation.drafts_before_verdict:
            return None
        if speculation.capabilities & NEEDED_CAPABILITIES:
            return None
        return cls(speculation)

    def has_nothing(self, step: Step, running: Several[Sequence]) -> bool:
        """Return whether the proposer drafts nothing after what is committed; asks it for a step that is late.

        Args:
            step: a launched step without drafts.
            running: those of its samples that still run.
        """
        if not step.is_late:
            return any(row.cap for row in step.rows)
        asked = Step([Row(sequence, sequence.num_computed, sequence.num_tokens) for sequence in running])
        self._speculation.plan(asked)
        has_nothing = not any(self._speculation.propose(asked).num_nodes)
        self._of(step).found.observe(not has_nothing)
        return has_nothing

    def pays(self, step: Step) -> bool:
        """Return whether to launch the step after `step` without asking."""
        measured = self._of(step)
        late, in_time = measured.late_s, measured.in_time_s
        if not measured.is_cheap:
            return False
        if late.count < _FEW or in_time.count < _FEW:
            return late.count < _FEW
        accepted = measured.accepted.value
        share = accepted / (1.0 + accepted)  # of the tokens of a step with a draft
        lost_s = measured.found.value * share * late.value / len(step.rows)
        is_better = in_time.value - late.value > lost_s
        measured.num_since += 1
        if measured.num_since >= _OTHER_EVERY:
            measured.num_since = 0
            return not is_better
        return is_better

    def observe(self, step: Step) -> bool:
        """Record a step; returns whether it was one in which a cheap proposer might have drafted, and did not."""
        is_typical = all(row.is_sampled and row.chunk == 1 for row in step.rows)
        if not is_typical or not (step.is_late or any(row.cap for row in step.rows)):
            self._had_none = False
            return False
        measured, has_nodes = self._of(step), any(row.num_nodes for row in step.rows)
        if self._had_none:
            measured.found.observe(has_nodes)
        for row in step.rows:
            if row.num_nodes:
                measured.accepted.observe(len(row.accepted))
        measured.num_steps += 1
        if not has_nodes and measured.num_steps > _WARM_UP:
            (measured.late_s if step.is_late else measured.in_time_s).observe(step.seconds)
            measured.asking_s.observe(step.propose_s)
        self._had_none = not step.is_late and not has_nodes
        return not has_nodes and measured.is_cheap

    def _of(self, step: Step) -> _Measured:
        return self._measured.setdefault(len(step.rows).bit_length(), _Measured())
