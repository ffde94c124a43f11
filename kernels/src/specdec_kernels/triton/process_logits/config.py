"""Launch parameters of the Triton kernels."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.triton import launch
from specdec_kernels.triton.launch import check_power_of_two, power_of_two

_MAX_BLOCK = 4096


@dataclass(frozen=True)
class LaunchConfig(launch.LaunchConfig):
    """How the work is divided among programs.

    Args:
        block: ids that one program of the elementwise kernels processes; a power of two.
        num_warps: warps of one such program.
        cut_block: ids that the program that cuts a row processes per loop iteration; a power of two.
        cut_num_warps: warps of that program, which occupies a multiprocessor alone.
    """

    cut_block: int = 1
    cut_num_warps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_power_of_two("cut_block", self.cut_block)


def heuristic(vocab_size: int) -> LaunchConfig:
    """Return a configuration for a vocabulary."""
    block = power_of_two(vocab_size, 16, _MAX_BLOCK)
    return LaunchConfig(block, 4, block, 16 if block == _MAX_BLOCK else 4)
