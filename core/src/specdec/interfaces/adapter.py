"""An adapter (LoRA) that a scorer has loaded."""

from __future__ import annotations

from typing import Protocol


class Adapter(Protocol):
    """Changes what the target computes for the rows of a request; the engine passes it on and compares it by identity."""

    @property
    def key(self) -> str:
        """Unlike that of any other loaded adapter: keys and values of prefixes are shared under the same one alone."""
