"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is divided. The heads of one KV head in one row are always one program.

    Args:
        num_warps: warps of one program.
    """

    num_warps: int


def heuristic(group: int, head_dim: int) -> LaunchConfig:
    """Return a configuration for `group` query heads of `head_dim` elements per KV head."""
    return LaunchConfig(num_warps=1 if group * head_dim <= 256 else 4 if group * head_dim <= 4096 else 8)
