"""Partial results of the shares of a split context, for the kernel that combines them."""

from __future__ import annotations

from typing import NamedTuple

import torch

from specdec_kernels.triton.arguments import shown


class Workspace(NamedTuple):
    """Partial results of P shares; all layers of a pass can share one. All float32 and contiguous."""

    sums: torch.Tensor
    """`[P, T, H, Dv]`: weighted sums of values."""
    maxima: torch.Tensor
    """`[P, T, H]`: greatest score, in units of log 2."""
    masses: torch.Tensor
    """`[P, T, H]`: sum of the weights."""


def allocate(num_shares: int, query: torch.Tensor, value_dim: int) -> Workspace:
    """Return a workspace for `query [T, H, D]`."""
    shape = (num_shares, *query.shape[:2])
    maxima = torch.empty(shape, dtype=torch.float32, device=query.device)
    return Workspace(maxima.new_empty((*shape, value_dim)), maxima, torch.empty_like(maxima))


def check_workspace(workspace: Workspace, num_shares: int, query: torch.Tensor, value_dim: int) -> None:
    """Reject a workspace of wrong shape, type, layout or device.

    Raises:
        ValueError: naming the tensor.
    """
    shape = (num_shares, *query.shape[:2])
    for name, wanted in (("sums", (*shape, value_dim)), ("maxima", shape), ("masses", shape)):
        tensor: torch.Tensor = getattr(workspace, name)
        if tensor.shape != wanted or tensor.dtype is not torch.float32 or not tensor.is_contiguous():
            raise ValueError(
                f"workspace.{name} must be contiguous float32 {list(wanted)}, "
                f"not {shown(tensor)}: see make_workspace"
            )
        if tensor.device != query.device:
            raise ValueError(f"workspace.{name} is on {tensor.device}, query on {query.device}")
