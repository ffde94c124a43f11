"""Launch parameters of the Triton kernels that generate noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from specdec_kernels.triton import launch
from specdec_kernels.triton.launch import check_power_of_two, power_of_two

_MAX_BLOCK_V = 2048


@dataclass(frozen=True)
class LaunchConfig(launch.LaunchConfig):
    """How the work is divided among programs; Philox generates blocks of four words, so a program has at least four ids."""

    def __post_init__(self) -> None:
        check_power_of_two("block", self.block, least=4)


@cache
def heuristic(vocab_size: int) -> LaunchConfig:
    """Return a configuration for a vocabulary; tiles are small, since every id costs about fifty instructions."""
    return LaunchConfig(power_of_two(vocab_size, 16, _MAX_BLOCK_V), num_warps=4)
