"""The convolutions over a block that DFlash2 has around attention and the MLP of each layer."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class ConvolutionSettings(NamedTuple):
    """Sizes of the convolutions."""

    num_taps: int
    """Rows that one sees: its own and those before it in the block."""
    group_size: int
    """Channels that share a factor."""


class GroupedConvolution(nn.Module):
    """A causal convolution of what a part of a layer reads, and one of what it returns, whose factors depend on the row.

    Args:
        hidden_size: number of channels.
        settings: its sizes.
    """

    def __init__(self, hidden_size: int, settings: ConvolutionSettings) -> None:
        super().__init__()
        self._shape = 2, settings.num_taps, hidden_size // settings.group_size
        self.base_kernel = nn.Parameter(torch.zeros(2, settings.num_taps, hidden_size))
        self.kernel_projection = nn.Linear(hidden_size, self._shape[1] * self._shape[2] * 2, bias=False)

    def kernels(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors `[T, taps, groups, channels]` of input and output for what a part reads, `x [T, H]`."""
        own = self.kernel_projection(x).unflatten(-1, self._shape)[..., None]
        before, behind = (self.base_kernel.unflatten(-1, (self._shape[2], -1)) + own).unbind(1)
        return before, behind


def convolved(x: Tensor, kernel: Tensor, places: Tensor) -> Tensor:
    """Return `x [T, H]` convolved over blocks.

    Args:
        x: rows of blocks, one after another.
        kernel: `[T, taps, groups, channels]` factors.
        places: `[T]` place of each row in its block.
    """
    grouped = x.unflatten(-1, kernel.shape[-2:])
    out: Tensor = kernel[:, 0] * grouped
    for tap in range(1, kernel.shape[1]):
        is_within = (places >= tap)[:, None, None]
        out = out + kernel[:, tap] * grouped.roll(tap, 0) * is_within
    rows: Tensor = out.flatten(-2)
    return rows
