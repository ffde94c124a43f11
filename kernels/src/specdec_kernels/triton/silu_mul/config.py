"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from specdec_kernels.triton.launch import RowBlocks as LaunchConfig
from specdec_kernels.triton.launch import row_blocks

__all__ = ["LaunchConfig", "candidates", "heuristic"]


def heuristic(size: int) -> LaunchConfig:
    """Return a configuration for rows of `size` elements."""
    return row_blocks(size)


def candidates(size: int) -> list[LaunchConfig]:
    """Return the configurations worth measuring for rows of `size` elements."""
    blocks = {heuristic(min(size, block)).block for block in (256, 512, 1024)}
    return [LaunchConfig(block, warps) for block in sorted(blocks) for warps in (2, 4)]
