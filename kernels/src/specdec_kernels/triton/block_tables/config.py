"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from specdec_kernels.triton.launch import RowBlocks as LaunchConfig
from specdec_kernels.triton.launch import row_blocks

__all__ = ["LaunchConfig", "heuristic"]


def heuristic(width: int) -> LaunchConfig:
    """Return a configuration for tables of `width` columns."""
    return row_blocks(width)
