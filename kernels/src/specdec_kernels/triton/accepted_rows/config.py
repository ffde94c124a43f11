"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from specdec_kernels.triton.launch import RowBlocks as LaunchConfig
from specdec_kernels.triton.launch import row_blocks as heuristic

__all__ = ["LaunchConfig", "heuristic"]
