"""A linear map with weights of 8 or 4 bits, for a proposer's modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import nn


class QuantizedLinear(nn.Module):
    """`x @ W.T + b` with `W = numbers * scales`: torch widens all of `W` in each call, backends read the stored bits.

    Args:
        packed: `[N, K]` int8, one number each; or `[N, K / 2]` uint8 for numbers from 0 to 15, 32 of them in 16 bytes: byte i
            holds number i in its lower and number i + 16 in its upper half.
        scales: `[N, 1]` float32 for int8; `[N, K / group, 2]` bfloat16 for 4 bits: what a group's numbers are multiplied
            by is the second, and what is added then the first. A group is a power of two of at least 32.
        bias: `[N]` or None.
    """

    BLOCK: ClassVar[int] = 32
    """Numbers of 4 bits that are stored together."""
    packed: torch.Tensor
    scales: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, packed: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        self.bits = 8 if packed.dtype == torch.int8 else 4
        self.out_features, width = packed.shape
        self.in_features = width * 8 // self.bits
        self.group_size = self.in_features // scales.shape[1]
        self.register_buffer("packed", packed)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `[..., N]` for `x [..., K]`."""
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return nn.functional.linear(x, self.weight(x.dtype), bias)

    def weight(self, dtype: torch.dtype) -> torch.Tensor:
        """Return `W [N, K]`."""
        if self.bits == 8:
            return self.packed.to(dtype) * self.scales.to(dtype)
        (numbers,) = self.numbers(self.out_features)
        groups = numbers.to(dtype).view(self.out_features, -1, self.group_size)
        least, scales = self.scales.to(dtype).unbind(-1)
        return (groups * scales[..., None] + least[..., None]).view(self.out_features, self.in_features)

    def numbers(self, num_rows: int) -> Iterator[torch.Tensor]:
        """Yield the numbers of 4 bits, `[n, K]` uint8, so many rows at a time."""
        for part in self.packed.split(num_rows):
            halves = part.view(len(part), -1, 1, self.BLOCK // 2)
            yield torch.cat((halves & 15, halves >> 4), 2).view(len(part), -1)
