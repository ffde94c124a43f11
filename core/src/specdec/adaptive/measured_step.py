"""What a step cost, and what came of its drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from specdec.adaptive.request_acceptance import RequestAcceptance


class DraftedFor(Protocol):
    """A running sample of a request."""

    row_id: str
    """Its id, unique among those that run."""
    depth_state: RequestAcceptance | None
    """How often its drafted tokens were accepted; None at first."""


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """What a step cost and what came of its drafts. Lists have an entry for each sample that got a token."""

    sequences: Sequence[DraftedFor]
    limits: Sequence[int]
    """The most nodes that could be drafted."""
    num_drafted: Sequence[int]
    num_accepted: Sequence[int]
    propose_s: float
    """Seconds of proposing."""
    other_s: float
    """Seconds of the rest of the step."""
    num_prompt_rows: int | None
    """Prompt rows in the target's pass; None if some running requests did not sample, so that the step says nothing
    about this batch size."""
    num_rows: int
    """All rows in the target's pass."""
