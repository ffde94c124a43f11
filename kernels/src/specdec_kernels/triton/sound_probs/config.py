"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from specdec_kernels.triton.launch import VocabularyTiles as LaunchConfig

__all__ = ["LaunchConfig", "candidates", "heuristic"]

_BLOCK_V = 2048


def heuristic(vocab_size: int) -> LaunchConfig:
    """Return a configuration, the same for every vocabulary: the draft's is not known when kernels are compiled."""
    return LaunchConfig(_BLOCK_V, num_warps=4)


def candidates(vocab_size: int) -> list[LaunchConfig]:
    """Return the configurations worth measuring."""
    return [heuristic(vocab_size)]
