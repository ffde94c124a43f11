"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from specdec_kernels.triton.launch import VocabularyTiles as LaunchConfig

__all__ = ["LaunchConfig", "heuristic"]

_BLOCK_V = 2048


def heuristic(vocab_size: int) -> LaunchConfig:
    """Return a configuration, the same for every vocabulary: the draft's is not known when kernels are compiled."""
    return LaunchConfig(_BLOCK_V, num_warps=4)
