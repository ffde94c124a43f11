"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.triton.launch import check_power_of_two, roomy

_NUMBERS_PER_PROGRAM = 4096
_LEAST_PATH = 8


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is divided among programs.

    Args:
        block_numbers: elements of every row of a path that one program moves; a power of two.
        num_warps: warps of one program.
    """

    block_numbers: int
    num_warps: int

    def __post_init__(self) -> None:
        check_power_of_two("block_numbers", self.block_numbers)


def path_block(path_len: int) -> int:
    """Return how many rows of a path a program has room for."""
    return roomy(path_len, _LEAST_PATH)


def path_lengths(most: int) -> list[int]:
    """Return one length of paths for each kernel that paths of up to `most` nodes need."""
    lengths = [1]
    while path_block(lengths[-1]) < most:
        lengths.append(path_block(lengths[-1]) + 1)
    return lengths


def heuristic(path_len: int) -> LaunchConfig:
    """Return a configuration in which a program holds about 4096 elements of a path's rows."""
    block_numbers = _NUMBERS_PER_PROGRAM // path_block(path_len)
    return LaunchConfig(min(512, max(32, block_numbers)), num_warps=4)
