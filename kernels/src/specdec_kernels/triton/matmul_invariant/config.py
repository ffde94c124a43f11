"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.triton.launch import check_power_of_two

_BLOCK_ROWS = 64
"""Rows of x in a tile, whatever their number, so that a row is always summed in the same way. Few rows leave most of a tile
empty, which costs little: they are bound by reading weights."""


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is divided among programs. Results of different configurations may differ in their last bits.

    Args:
        block_rows: rows of x in one tile; a power of two.
        block_columns: rows of the weight in one tile; a power of two.
        block_depth: elements of a row per loop iteration; a power of two.
        num_warps: warps of one program.
        num_stages: pipeline stages.
    """

    block_rows: int
    block_columns: int
    block_depth: int
    num_warps: int
    num_stages: int = 3

    def __post_init__(self) -> None:
        for name in ("block_rows", "block_columns", "block_depth"):
            check_power_of_two(name, getattr(self, name), least=16)


def heuristic(out_features: int, itemsize: int) -> LaunchConfig:
    """Return a configuration for a weight of N rows; it does not depend on the number of rows of x."""
    block_depth = 128 // itemsize
    if out_features > 8192:
        return LaunchConfig(_BLOCK_ROWS, 128, block_depth, num_warps=4)
    # As many programs as multiprocessors. Each reads narrow tiles, of which so many are on their way that memory stays busy.
    return LaunchConfig(_BLOCK_ROWS, 32, block_depth, num_warps=4, num_stages=8)
