"""Launch parameters of the Triton kernels."""

from __future__ import annotations

from dataclasses import dataclass

_MAX_BLOCK_V = 8192


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is cut up.

    Args:
        block_v: ids that one program looks at; a power of two.
        num_warps: warps of one program.
    """

    block_v: int
    num_warps: int

    def __post_init__(self) -> None:
        if self.block_v < 1 or self.block_v & (self.block_v - 1):
            raise ValueError(f"block_v={self.block_v} must be a power of two")

    def num_tiles(self, vocab_size: int) -> int:
        """Return how many programs share a row of `vocab_size` logits."""
        return -(-vocab_size // self.block_v)


def heuristic(vocab_size: int) -> LaunchConfig:
    """Return a configuration that fits a vocabulary: one tile where it is small, tiles of 8192 ids where it is not."""
    block_v = min(_MAX_BLOCK_V, max(16, 1 << (vocab_size - 1).bit_length()))
    return LaunchConfig(block_v=block_v, num_warps=8 if block_v >= 4096 else 4)


def candidates(vocab_size: int) -> list[LaunchConfig]:
    """Return the configurations worth measuring for a vocabulary."""
    blocks = {heuristic(min(vocab_size, block)).block_v for block in (1024, 2048, 4096, 8192)}
    return [LaunchConfig(block, warps) for block in sorted(blocks) for warps in (4, 8)]
