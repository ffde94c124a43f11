"""A linear layer in plain torch: the specification."""

from __future__ import annotations

import torch
from torch.nn.functional import linear


def matmul_invariant_reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Return `[T, N]`; see `matmul_invariant`."""
    return linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)
