"""One loaded adapter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn


class LowRank(NamedTuple):
    """What an adapter adds to one linear map: `scaling * up @ down`."""

    down: torch.Tensor
    """`[r, in]`, PEFT's `lora_A`."""
    up: torch.Tensor
    """`[out, r]`, PEFT's `lora_B`."""
    scaling: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return what is added `[..., out]` for inputs `[..., in]`."""
        return (x.to(self.down.dtype) @ self.down.T @ self.up.T) * self.scaling


@dataclass(frozen=True, eq=False)
class LoadedAdapter:
    """An adapter on the devices of its modules; compared by identity."""

    key: str
    """See `specdec.interfaces.Adapter`."""
    maps: Mapping[nn.Module, LowRank]
    """By the module whose output it is added to."""
