"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from specdec_kernels.triton.launch import LaunchConfig, roomy

_NUMBERS_PER_PROGRAM = 4096
_LEAST_PATH = 8


def path_block(path_len: int) -> int:
    """Return how many rows of a path a program has room for."""
    return roomy(path_len, _LEAST_PATH)


def path_lengths(most: int) -> list[int]:
    """Return one length of paths for each kernel that paths of up to `most` nodes need."""
    lengths = [1]
    while path_block(lengths[-1]) < most:
        lengths.append(path_block(lengths[-1]) + 1)
    return lengths


def heuristic(path_len: int) -> LaunchConfig:
    """Return how many elements of every row make a program move about 4096 of a path."""
    block_numbers = _NUMBERS_PER_PROGRAM // path_block(path_len)
    return LaunchConfig(min(512, max(32, block_numbers)), num_warps=4)
