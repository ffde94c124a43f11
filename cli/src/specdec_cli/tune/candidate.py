"""One configuration that is tried, and the engine that measures it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specdec_cli.bench.contender import BASELINE, Contender

Kind = Literal["plain", "copies", "model", "several"]
"""Decodes without drafts, drafts without a model, drafts with one, or combines methods."""


@dataclass(frozen=True)
class Candidate:
    """A configuration, and how it is measured before the last stage."""

    contender: Contender
    num_speculative_tokens: int
    """Its k; 0 for plain decoding."""
    kind: Kind
    engine: Contender
    """What its engine is made with: the same, or the same with a higher k, which requests then lower."""

    @property
    def name(self) -> str:
        """Return the name of the configuration."""
        return self.contender.name

    @property
    def lower(self) -> int | None:
        """Return the k that requests lower to; None if it is the engine's own."""
        return None if self.engine is self.contender else self.num_speculative_tokens

    def alone(self) -> Candidate:
        """Return the candidate with an engine of its own."""
        return Candidate(self.contender, self.num_speculative_tokens, self.kind, self.contender)


PLAIN = Candidate(BASELINE, 0, "plain", BASELINE)
