"""Launch parameters of the Triton kernels that generate noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from specdec_kernels.triton.launch import VocabularyTiles, power_of_two

_MAX_BLOCK_V = 2048


@dataclass(frozen=True)
class LaunchConfig(VocabularyTiles):
    """How the work is divided among programs.

    Args:
        block_v: ids that one program processes; a power of two, at least 4, since Philox generates blocks of four words.
        num_warps: warps of one program.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block_v < 4:
            raise ValueError(f"block_v={self.block_v} must be at least 4")


@cache
def heuristic(vocab_size: int) -> LaunchConfig:
    """Return a configuration for a vocabulary; tiles are small, since every id costs about fifty instructions."""
    return LaunchConfig(power_of_two(vocab_size, 16, _MAX_BLOCK_V), num_warps=4)
