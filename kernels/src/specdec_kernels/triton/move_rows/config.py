"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.triton.launch import check_power_of_two, power_of_two


@dataclass(frozen=True)
class LaunchConfig:
    """How the work of a program, that of one request, is divided.

    Args:
        block_rows: rows that are moved at once; a power of two.
    """

    block_rows: int

    def __post_init__(self) -> None:
        check_power_of_two("block_rows", self.block_rows)


def heuristic(num_rows: int, num_requests: int) -> LaunchConfig:
    """Return a configuration in which most requests need one turn."""
    return LaunchConfig(power_of_two(-(-num_rows // num_requests), 8, 64))
