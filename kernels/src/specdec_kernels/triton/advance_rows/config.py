"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.triton.launch import check_power_of_two, power_of_two

_LEAST_ROWS = 32


@dataclass(frozen=True)
class LaunchConfig:
    """How the work of the one program is divided; it has one warp, whose reads precede its writes.

    Args:
        block_rows: padding rows that are written at once; a power of two.
    """

    block_rows: int

    def __post_init__(self) -> None:
        check_power_of_two("block_rows", self.block_rows)


def heuristic(num_rows: int) -> LaunchConfig:
    """Return a configuration in which a thread writes few rows at once."""
    return LaunchConfig(power_of_two(num_rows, _LEAST_ROWS, 128))
