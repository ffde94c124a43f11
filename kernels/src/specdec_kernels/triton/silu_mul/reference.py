"""The gated activation of a feed-forward layer in plain torch: the specification."""

from __future__ import annotations

import torch
from torch.nn.functional import gelu, silu


def silu_mul_reference(gate: torch.Tensor, up: torch.Tensor, activation: str) -> torch.Tensor:
    """Return `activation(gate) * up`, `[T, F]`; see `silu_mul`."""
    wide = gate.float()
    active = silu(wide) if activation == "silu" else gelu(wide, approximate="tanh")
    return (active * up.float()).to(gate.dtype)
