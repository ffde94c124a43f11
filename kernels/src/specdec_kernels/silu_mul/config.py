"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass

_MAX_BLOCK = 1024


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is cut up.

    Args:
        block: numbers of a row that one program makes; a power of two.
        num_warps: warps of one program.
    """

    block: int
    num_warps: int

    def __post_init__(self) -> None:
        if self.block < 1 or self.block & (self.block - 1):
            raise ValueError(f"block={self.block} must be a power of two")


def heuristic(size: int) -> LaunchConfig:
    """Return a configuration for rows of `size` numbers."""
    block = min(_MAX_BLOCK, max(32, 1 << (size - 1).bit_length()))
    return LaunchConfig(block, num_warps=4 if block >= 512 else 1)


def candidates(size: int) -> list[LaunchConfig]:
    """Return the configurations worth measuring for rows of `size` numbers."""
    blocks = {heuristic(min(size, block)).block for block in (256, 512, 1024)}
    return [LaunchConfig(block, warps) for block in sorted(blocks) for warps in (2, 4)]
