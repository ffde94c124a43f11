"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.triton.launch import check_power_of_two, roomy

_PAIRS = 4096
_LEAST_PATH = 16


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is divided.

    Args:
        block_ids: ids of a text that a program compares with a path at once; a power of two.
        num_warps: warps of one program, which changes one row.
    """

    block_ids: int
    num_warps: int

    def __post_init__(self) -> None:
        check_power_of_two("block_ids", self.block_ids)


def path_block(path_len: int) -> int:
    """Return how many tokens of a path are compared at once."""
    return roomy(path_len, _LEAST_PATH)


def heuristic(path_len: int) -> LaunchConfig:
    """Return a configuration in which a program compares about 4096 pairs at once."""
    return LaunchConfig(max(32, _PAIRS // path_block(path_len)), num_warps=4)
