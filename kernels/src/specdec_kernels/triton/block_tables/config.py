"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from specdec_kernels.triton.launch import RowBlocks as LaunchConfig
from specdec_kernels.triton.launch import row_blocks

__all__ = ["LaunchConfig", "candidates", "heuristic"]


def heuristic(width: int) -> LaunchConfig:
    """Return a configuration for tables of `width` columns."""
    return row_blocks(width)


def candidates(width: int) -> list[LaunchConfig]:
    """Return the configurations worth measuring for tables of `width` columns."""
    blocks = {heuristic(min(width, block)).block for block in (128, 256, 1024)}
    return [LaunchConfig(block, warps) for block in sorted(blocks) for warps in (1, 4)]
