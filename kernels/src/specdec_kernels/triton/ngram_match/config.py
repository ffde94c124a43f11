"""Launch parameters of the Triton kernels."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.triton.launch import check_power_of_two, power_of_two

_MAX_BLOCK_L = 4096


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is divided among programs.

    Args:
        block_l: positions of a text that one program processes; a power of two.
        num_warps: warps of one program.
    """

    block_l: int
    num_warps: int

    def __post_init__(self) -> None:
        check_power_of_two("block_l", self.block_l)

    def num_tiles(self, width: int) -> int:
        """Return the number of tiles in a text of `width` columns, one program each."""
        return max(1, -(-width // self.block_l))


def heuristic(width: int) -> LaunchConfig:
    """Return a configuration for the width of the token buffer."""
    return LaunchConfig(power_of_two(width, 16, _MAX_BLOCK_L), 4)
