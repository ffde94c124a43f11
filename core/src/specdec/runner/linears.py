"""Linear modules of a proposer's small networks, run by a backend."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from specdec import registry
from specdec.interfaces.backend import Declined


def speed_up_linears(module: nn.Module) -> None:
    """Make the `nn.Linear` modules of a frozen module use a backend's products.

    Results are the same up to summation order. Modules of other classes, subclasses included, are not changed.
    """
    for linear in module.modules():
        if type(linear) is nn.Linear:
            forward = fast_linear(linear)
            if forward is not None:
                linear.forward = forward  # type: ignore[method-assign, assignment]


def fast_linear(module: nn.Linear) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Return a backend's forward `[..., in] -> [..., out]` of a frozen linear module; None if no backend has one."""
    for backend in registry.backends():
        forward = backend.linear(module)
        if not isinstance(forward, Declined):
            return forward
    return None


def has_native_bfloat16() -> bool:
    """Return whether this processor multiplies bfloat16 matrices in hardware."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
