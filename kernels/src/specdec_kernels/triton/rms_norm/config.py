"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is divided. A row is always one program.

    Args:
        num_warps: warps of one program. The summation order depends on it, so a model must always use the same number.
    """

    num_warps: int


def heuristic(size: int) -> LaunchConfig:
    """Return a configuration for rows of `size` elements; it does not depend on the number of rows."""
    return LaunchConfig(num_warps=1 if size <= 256 else 4 if size <= 2048 else 8 if size <= 8192 else 16)
