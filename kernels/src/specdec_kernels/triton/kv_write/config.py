"""Launch parameters of the Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_kernels.triton.launch import check_power_of_two, power_of_two

_NUMBERS_PER_PROGRAM = 2048


@dataclass(frozen=True)
class LaunchConfig:
    """How the work is divided among programs.

    Args:
        block_heads: KV heads of a row that one program copies; a power of two.
        num_warps: warps of one program.
    """

    block_heads: int
    num_warps: int

    def __post_init__(self) -> None:
        check_power_of_two("block_heads", self.block_heads)


def heuristic(num_kv_heads: int, head_dim: int) -> LaunchConfig:
    """Return a configuration in which a program copies about 2048 elements of keys and as many of values."""
    fitting = max(1, _NUMBERS_PER_PROGRAM // power_of_two(head_dim))
    block_heads = power_of_two(num_kv_heads, most=fitting)
    return LaunchConfig(block_heads, num_warps=4 if block_heads * head_dim >= 1024 else 1)
