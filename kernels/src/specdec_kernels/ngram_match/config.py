"""Launch parameters of the Triton kernels."""

from __future__ import annotations

from dataclasses import dataclass

_MAX_BLOCK_L = 4096


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is cut up.

    Args:
        block_l: positions of a text that one program looks at; a power of two.
        num_warps: warps of one program.
    """

    block_l: int
    num_warps: int

    def __post_init__(self) -> None:
        if self.block_l < 1 or self.block_l & (self.block_l - 1):
            raise ValueError(f"block_l={self.block_l} must be a power of two")

    def num_tiles(self, width: int) -> int:
        """Return how many programs share a text of `width` columns."""
        return max(1, -(-width // self.block_l))


def heuristic(width: int) -> LaunchConfig:
    """Return a configuration that fits the width of the token buffer."""
    return LaunchConfig(min(_MAX_BLOCK_L, max(16, 1 << max(0, width - 1).bit_length())), 4)


def candidates(width: int) -> list[LaunchConfig]:
    """Return the configurations worth measuring for a width."""
    blocks = {heuristic(min(width, block)).block_l for block in (512, 1024, 2048, 4096)}
    return [LaunchConfig(block, warps) for block in sorted(blocks) for warps in (2, 4, 8)]
