"""The interface that rounds and cases require of an engine, in this process or another."""

from __future__ import annotations

from typing import Protocol

from common.protocol import Ready, Reply
from common.variant import Variant


class Contestant(Protocol):
    """One engine in one configuration, loaded."""

    @property
    def ready(self) -> Ready:
        """The message it sent after loading."""
        ...

    def generate(self, prompts: list[list[int]], max_tokens: int) -> Reply:
        """Generate one batch, greedily and past any end-of-text token."""
        ...

    def cpu_seconds(self) -> float:
        """Processor time used so far, including time used while it should have been idle."""
        ...


class Contestants(Protocol):
    """A source of contestants."""

    def get(self, variant: Variant) -> Contestant:
        """Return a variant, loaded once."""
        ...
