"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.triton.launch import check_power_of_two, roomy


@dataclass(frozen=True)
class LaunchConfig:
    """How the work of a program, that of one request, is done.

    Args:
        block_tokens: tokens that it appends at once, at least those of a verdict; a power of two.
    """

    block_tokens: int

    def __post_init__(self) -> None:
        check_power_of_two("block_tokens", self.block_tokens)


def heuristic(num_tokens: int) -> LaunchConfig:
    """Return a configuration for verdicts of so many tokens."""
    return LaunchConfig(roomy(num_tokens, 16))
