"""Helpers shared by the operations' launch configurations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

_MOST_IN_BLOCK = 1024


def power_of_two(size: int, least: int = 1, most: int | None = None) -> int:
    """Return the smallest power of two that is at least `size`, within bounds that are powers of two."""
    found = max(least, 1 << max(0, size - 1).bit_length())
    return found if most is None else min(most, found)


@cache
def roomy(size: int, least: int, factor: int = 4) -> int:
    """Return the first of `least`, `factor * least`, ... that is at least `size`: so few kernels are compiled."""
    found = least
    while found < size:
        found *= factor
    return found


@cache
def places_for(width: int) -> int:
    """Return how many places a program has for a draft of `width` nodes and what it follows."""
    return roomy(width + 1, 32)


def check_power_of_two(name: str, size: int, least: int = 1) -> None:
    """Reject a size that is not a power of two or is below `least`.

    Raises:
        ValueError: naming the size.
    """
    if size < least or size & (size - 1):
        bound = "" if least == 1 else f" and at least {least}"
        raise ValueError(f"{name}={size} must be a power of two{bound}")


@dataclass(frozen=True)
class LaunchConfig:
    """How the work of an operation is divided among programs.

    Args:
        block: elements, rows, ids or heads that one program has at once, as the operation's kernel says; a power of two.
        num_warps: warps of one program.
    """

    block: int
    num_warps: int = 1

    def __post_init__(self) -> None:
        check_power_of_two("block", self.block)

    def num_tiles(self, size: int) -> int:
        """Return the number of blocks that `size` elements need, one program each."""
        return max(1, -(-size // self.block))


@cache
def row_blocks(size: int) -> LaunchConfig:
    """Return a configuration for rows of `size` elements, of which a program has a part."""
    block = power_of_two(size, 32, _MOST_IN_BLOCK)
    return LaunchConfig(block, num_warps=4 if block >= _MOST_IN_BLOCK // 2 else 1)
