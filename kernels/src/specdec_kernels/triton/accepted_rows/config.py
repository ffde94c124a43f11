"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.triton.launch import check_power_of_two, power_of_two

_LEAST, _MOST = 128, 1024


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is divided among programs.

    Args:
        block: numbers of a row that one program copies; a power of two.
        num_warps: warps of one program.
    """

    block: int
    num_warps: int

    def __post_init__(self) -> None:
        check_power_of_two("block", self.block)


def heuristic(width: int) -> LaunchConfig:
    """Return a configuration for rows of `width` numbers."""
    return LaunchConfig(power_of_two(width, _LEAST, _MOST), num_warps=4)


def candidates(width: int) -> list[LaunchConfig]:
    """Return the configurations worth measuring for rows of `width` numbers."""
    blocks = {power_of_two(width, _LEAST, most) for most in (256, 512, _MOST)}
    return [LaunchConfig(block, warps) for block in sorted(blocks) for warps in (1, 4)]
