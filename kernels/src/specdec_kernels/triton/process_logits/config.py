"""Launch parameters of the Triton kernels."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.triton.launch import VocabularyTiles, check_power_of_two, power_of_two

_MAX_BLOCK_V = 4096


@dataclass(frozen=True)
class LaunchConfig(VocabularyTiles):
    """How the work is divided among programs.

    Args:
        block_v: ids that one program of the elementwise kernels processes; a power of two.
        num_warps: warps of one such program.
        cut_block_v: ids that the program that cuts a row processes per loop iteration; a power of two.
        cut_num_warps: warps of that program, which occupies a multiprocessor alone.
    """

    cut_block_v: int
    cut_num_warps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_power_of_two("cut_block_v", self.cut_block_v)


def heuristic(vocab_size: int) -> LaunchConfig:
    """Return a configuration for a vocabulary."""
    block_v = power_of_two(vocab_size, 16, _MAX_BLOCK_V)
    return LaunchConfig(block_v, 4, block_v, 16 if block_v == _MAX_BLOCK_V else 4)
