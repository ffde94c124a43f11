"""What a piece of work asked of the device."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Counts:
    """Numbers of requests to the device, with the lines of specdec that made them."""

    launches: int = 0
    """Kernels outside graphs, and replays of graphs."""
    replays: int = 0
    recordings: int = 0
    compilations: int = 0
    """Kernels compiled for sizes or dtypes that were new."""
    copies_in: int = 0
    copies_out: int = 0
    synchronisations: int = 0
    ahead: int = 0
    """Launches of the next work before the host waited for the results of the last."""
    kernels: Counter[str] = field(default_factory=Counter)
    """Launches of Triton kernels by name, captured ones included."""
    sites: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By kind, operation and line."""

    def add(self, kind: str, operation: str) -> None:
        """Count one request; `kind` is the name of a number."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.sites[kind, operation, line_of_ours()] += 1

    def listed(self, *kinds: str) -> str:
        """Return the lines behind these numbers, most requests first."""
        rows = [(n, *key) for key, n in self.sites.most_common() if not kinds or key[0] in kinds]
        return "\n".join(f"{n:4} {kind} {operation} {line}" for n, kind, operation, line in rows)


def line_of_ours() -> str:
    """Return the innermost line of specdec that is running, and its caller's."""
    frame, found = sys._getframe(1), list[str]()
    while frame is not None and len(found) < 2:
        name = frame.f_code.co_filename
        if "/src/specdec" in name:
            found.append(f"{name.rpartition('/src/')[2]}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return " < ".join(found)
