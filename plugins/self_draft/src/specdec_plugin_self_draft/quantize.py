"""Rounds weights to 8 or 4 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import nn

from specdec_runtime.interfaces import QuantizedLinear

_ROWS = 4096
"""Rows that are rounded at a time, so that a large output projection needs no float32 copy."""
_ALL_SPANS = tuple(range(15, 7, -1))
"""Numbers between the least and the greatest weight of a group in 4 bits: fewer than 8 are one of these, or divide one."""
_SAMPLED = 64
_ROUNDING = 0.02
"""Error of weights found again, relative to them: that of bfloat16 is 0.002, that of other weights in 4 bits 0.08."""


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


def is_found_again(weight: torch.Tensor, group_size: int) -> bool:
    """Return whether weights `[N, K]` had 4 bits before they were widened, judged by some of their rows."""
    some = weight.detach()[:: max(1, len(weight) // _SAMPLED)].float()
    error = _Grid.best(some.view(len(some), -1, group_size), _ALL_SPANS).error.sum()
    return bool(error <= _ROUNDING**2 * some.square().sum())


def _halves(weight: torch.Tensor, group_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return packed numbers `[N, K / 2]` and `[N, K / group_size, 2]` least values and scales."""
    groups = weight.float().view(len(weight), -1, group_size)
    grid = _Grid.best(groups, _ALL_SPANS if is_found_again(weight, group_size) else _ALL_SPANS[:1])
    halves = grid.numbers.to(torch.uint8).view(len(weight), -1, 2, QuantizedLinear.BLOCK // 2)
    return (halves[:, :, 0] | halves[:, :, 1] << 4).flatten(1), torch.cat(
        (grid.least, grid.scale), 2
    ).bfloat16()


@dataclass
class _Grid:
    """Groups of weights `[N, G, group_size]`, rounded to `least [N, G, 1] + scale [N, G, 1] * numbers`, bfloat16 both."""

    numbers: torch.Tensor
    least: torch.Tensor
    scale: torch.Tensor
    error: torch.Tensor
    """`[N, G, 1]` sums of squares."""

    @classmethod
    def best(cls, groups: torch.Tensor, spans: Sequence[int]) -> _Grid:
        """Return for each group the best of the grids on which its least weight is 0 and its greatest one of `spans`."""
        best = cls._of(groups, spans[0])
        for span in spans[1:]:
            other = cls._of(groups, span)
            is_better = other.error < best.error
            for field in fields(cls):
                own = getattr(best, field.name)
                setattr(best, field.name, torch.where(is_better, getattr(other, field.name), own))
        return best

    @classmethod
    def _of(cls, groups: torch.Tensor, span: int) -> _Grid:
        least, greatest = groups.aminmax(dim=2, keepdim=True)
        scale = ((greatest - least) / span).bfloat16().float()
        least = least.bfloat16().float()
        numbers = ((groups - least) / scale.clamp_min(torch.finfo(torch.float32).tiny)).round_().clamp_(0, 15)
        error = (numbers * scale).add_(least).sub_(groups).square_().sum(2, keepdim=True)
        return cls(numbers, least, scale, error)
