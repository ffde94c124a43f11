"""Launch parameters of the Triton kernels."""

from __future__ import annotations

from specdec_kernels.launch import VocabularyTiles as LaunchConfig
from specdec_kernels.launch import power_of_two

__all__ = ["LaunchConfig", "candidates", "heuristic"]

_MAX_BLOCK_V = 8192


def heuristic(vocab_size: int) -> LaunchConfig:
    """Return a configuration for a vocabulary: one tile if it is small, else tiles of 8192 ids."""
    block_v = power_of_two(vocab_size, 16, _MAX_BLOCK_V)
    return LaunchConfig(block_v=block_v, num_warps=8 if block_v >= 4096 else 4)


def candidates(vocab_size: int) -> list[LaunchConfig]:
    """Return the configurations worth measuring for a vocabulary."""
    blocks = {heuristic(min(vocab_size, block)).block_v for block in (1024, 2048, 4096, 8192)}
    return [LaunchConfig(block, warps) for block in sorted(blocks) for warps in (4, 8)]
