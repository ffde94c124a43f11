"""Sizes at which kernels are measured."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from device.shape import LLAMA_8B, TINY, Shape


@dataclass(frozen=True)
class Sizes:
    """One step of a batch on one device."""

    shape: Shape
    batch_size: int
    k: int
    context: int
    """Tokens of each request in the cache."""
    block_size: int
    dtype: torch.dtype
    device: torch.device

    @property
    def num_rows(self) -> int:
        """T: rows of the pass."""
        return self.batch_size * (1 + self.k)

    @property
    def head_dim(self) -> int:
        """D."""
        return self.shape.hidden_size // self.shape.num_heads

    @property
    def num_blocks(self) -> int:
        """Number of cache blocks that all requests fill."""
        return self.batch_size * -(-self.context // self.block_size)

    def randn(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return normally distributed numbers on the device."""
        return torch.randn(shape, dtype=dtype or self.dtype, device=self.device)

    def ids(self, *shape: int, below: int) -> torch.Tensor:
        """Return random int64 numbers from 0 to `below - 1`, on the device."""
        return torch.randint(below, shape, device=self.device)

    def arange(self, count: int) -> torch.Tensor:
        """Return the int64 numbers 0 to `count - 1`, on the device."""
        return torch.arange(count, device=self.device)


def large_sizes(device: torch.device) -> Sizes:
    """Return a step of an 8B model: 8 requests with 4 drafted tokens and 2048 tokens of context each."""
    return Sizes(LLAMA_8B, 8, 4, 2048, 16, torch.bfloat16, device)


def small_sizes(device: torch.device) -> Sizes:
    """Return a step small enough that references run in milliseconds."""
    return Sizes(TINY, 3, 2, 40, 8, torch.float32, device)
