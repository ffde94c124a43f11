"""The gated activation of a feed-forward layer in plain torch: the specification."""

from __future__ import annotations

import torch
from torch.nn.functional import silu


def silu_mul_reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return `silu(gate) * up`, `[T, F]`; see `silu_mul`."""
    return (silu(gate.float()) * up.float()).to(gate.dtype)
