"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.triton.launch import check_power_of_two, power_of_two

_MAX_BLOCK = 1024


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is divided among programs.

    Args:
        block: elements of a row that one program computes; a power of two.
        num_warps: warps of one program.
    """

    block: int
    num_warps: int

    def __post_init__(self) -> None:
        check_power_of_two("block", self.block)


def heuristic(size: int) -> LaunchConfig:
    """Return a configuration for rows of `size` elements."""
    block = power_of_two(size, 32, _MAX_BLOCK)
    return LaunchConfig(block, num_warps=4 if block >= 512 else 1)


def candidates(size: int) -> list[LaunchConfig]:
    """Return the configurations worth measuring for rows of `size` elements."""
    blocks = {heuristic(min(size, block)).block for block in (256, 512, 1024)}
    return [LaunchConfig(block, warps) for block in sorted(blocks) for warps in (2, 4)]
