"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.launch import check_power_of_two

_BLOCK_ROWS = 64
"""Of matrix instructions that take all tile sizes alike; few rows are bound by reading weights."""


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is cut up. Results of different configurations may differ in their last bits.

    Args:
        block_rows: rows of x of one tile; a power of two.
        block_columns: rows of the weight of one tile; a power of two.
        block_depth: numbers of a row that are multiplied together; a power of two.
        num_warps: warps of one program.
        num_stages: how many tiles are in flight.
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
    """Return a configuration for a weight of N rows; how many rows it is multiplied with plays no part."""
    block_columns = 32 if out_features <= 8192 else 128  # as many programs as multiprocessors, or large tiles
    block_depth = 128 // itemsize
    return LaunchConfig(_BLOCK_ROWS, block_columns, block_depth, num_warps=4)


def candidates(out_features: int, itemsize: int) -> list[LaunchConfig]:
    """Return the configurations worth measuring for a weight; one is then taken for every number of rows."""
    depth = 128 // itemsize
    return [
        LaunchConfig(rows, columns, depth, num_warps=8 if rows * columns >= 128 * 128 else 4)
        for rows in (64, 128)
        for columns in (32, 64, 128)
        if columns < 2 * out_features
    ]
