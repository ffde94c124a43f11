"""What rounds and cases need of an engine, wherever it runs."""

from __future__ import annotations

from typing import Protocol

from common.protocol import Ready, Reply
from common.variant import Variant


class Contestant(Protocol):
    """One engine in one configuration, loaded."""

    @property
    def ready(self) -> Ready:
        """What it said of itself."""
        ...

    def generate(self, prompts: list[list[int]], max_tokens: int) -> Reply:
        """Generate one batch, greedily and past any end-of-text token."""
        ...

    def cpu_seconds(self) -> float:
        """Processor time that it used so far, also while it should have waited."""
        ...


class Contestants(Protocol):
    """Where contestants come from."""

    def get(self, variant: Variant) -> Contestant:
        """Return a variant, loaded once."""
        ...
