"""How many tokens to draft: what a package that decides it by measurement does for core (`adaptive`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from specdec.interfaces.part import Part


class DraftedFor(Protocol):
    """A running sample of a request."""

    row_id: str
    """Its id, unique among those that run."""
    depth_state: Any
    """What a `DraftDepth` keeps of it; None at first."""


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


class DraftDepth(Part):
    """Part `draft_depth`: lowers the number of nodes that a step may draft, to what pays off. One object serves one engine.

    In each step come `begin`, `limit` for each sample, and `observe`. If verdicts do not depend on drafts (`strict`), its
    decisions change no text.
    """

    is_suspended: bool = False
    """Whether the step that has begun drafts nothing, so that the proposer is not called; it gets the missed tokens later."""

    @abstractmethod
    def open(self, num_speculative_tokens: int, *, can_shorten: bool) -> None:
        """Prepare for one proposer.

        Args:
            num_speculative_tokens: k.
            can_shorten: whether drafts are chains, whose last nodes can be left out; otherwise a step drafts k
                nodes or none.
        """

    @abstractmethod
    def begin(self, sequences: Sequence[DraftedFor], most: int) -> None:
        """Begin a step.

        Args:
            sequences: the running samples.
            most: maximum number of nodes that the configuration allows for one of them; if 0, nothing is
                decided.
        """

    @abstractmethod
    def limit(self, sequence: DraftedFor, most: int) -> int:
        """Return the maximum number of nodes for one sample, at most the `most` that are allowed."""

    @abstractmethod
    def observe(self, step: MeasuredStep) -> None:
        """Record a step; not called where the proposer failed or was paused."""
