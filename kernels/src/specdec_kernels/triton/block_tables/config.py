"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.triton.launch import check_power_of_two, power_of_two

_MAX_BLOCK = 1024


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is divided among programs.

    Args:
        block: columns of a table that one program writes; a power of two.
        num_warps: warps of one program.
    """

    block: int
    num_warps: int

    def __post_init__(self) -> None:
        check_power_of_two("block", self.block)


def heuristic(width: int) -> LaunchConfig:
    """Return a configuration for tables of `width` columns."""
    block = power_of_two(width, 32, _MAX_BLOCK)
    return LaunchConfig(block, num_warps=4 if block >= 512 else 1)


def candidates(width: int) -> list[LaunchConfig]:
    """Return the configurations worth measuring for tables of `width` columns."""
    blocks = {heuristic(min(width, block)).block for block in (128, 256, 1024)}
    return [LaunchConfig(block, warps) for block in sorted(blocks) for warps in (1, 4)]
