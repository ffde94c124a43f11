"""Rounds weights to 8 or 4 bits."""

from __future__ import annotations

import torch
from torch import nn

from specdec.interfaces import QuantizedLinear

_ROWS = 4096
"""Rows that are rounded at a time, so that a large output projection needs no float32 copy."""


def quantized(linear: nn.Linear, bits: int, group_size: int) -> QuantizedLinear:
    """Return a linear map with weights of 8 or 4 bits.

    Args:
        linear: the map.
        bits: 8 for one scale per output, 4 for one scale per output and group of inputs.
        group_size: inputs per group; divides their number.
    """
    weight = linear.weight.detach()
    parts = [_bytes(rows) if bits == 8 else _halves(rows, group_size) for rows in weight.split(_ROWS)]
    packed, scales = (torch.cat(column) for column in zip(*parts, strict=True))
    bias: torch.Tensor | None = linear.bias
    return QuantizedLinear(packed, scales, None if bias is None else bias.detach())


def _bytes(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return numbers `[N, K]` from -127 to 127 and scales `[N, 1]`; the largest weight of a row keeps its value."""
    wide = weight.float()
    scales = wide.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / 127
    return (wide / scales).round_().to(torch.int8), scales


def _halves(weight: torch.Tensor, group_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return packed numbers `[N, K / 2]` and scales `[N, K / group_size]`.

    A group's largest weight in magnitude becomes -8, as in GGUF's Q4_0, whose weights are thus found again.
    """
    groups = weight.float().view(len(weight), -1, group_size)
    extreme = groups.gather(2, groups.abs().argmax(2, keepdim=True))
    scales = (extreme / -8).bfloat16()
    inverse = torch.where(scales == 0, 0.0, 1 / scales.float())
    numbers = (groups * inverse).round_().clamp_(-8, 7).add_(8).to(torch.uint8)
    halves = numbers.view(len(weight), -1, 2, QuantizedLinear.BLOCK // 2)
    return (halves[:, :, 0] | halves[:, :, 1] << 4).flatten(1), scales.squeeze(2)
