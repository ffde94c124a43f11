"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.triton.launch import check_power_of_two, power_of_two

_MAX_BLOCK = 4096


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is divided.

    Args:
        block_v: ids that the program of a row reads at once; a power of two.
        num_warps: warps of that program.
    """

    block_v: int
    num_warps: int

    def __post_init__(self) -> None:
        check_power_of_two("block_v", self.block_v)


def heuristic(vocab_size: int) -> LaunchConfig:
    """Return a configuration for a vocabulary."""
    block_v = power_of_two(vocab_size, 16, _MAX_BLOCK)
    return LaunchConfig(block_v, 8 if block_v == _MAX_BLOCK else 2)
