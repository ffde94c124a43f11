"""Gathers a module whose weights are split over the ranks."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.distributed.tensor import DTensor


def whole_module(module: nn.Module) -> nn.Module:
    """Gather an embedding or a linear map from all ranks, so that one rank can use it alone; called by all ranks."""
    if not any(isinstance(parameter, DTensor) for parameter in module.parameters(recurse=False)):
        return module
    whole = copy.copy(module)
    whole.__dict__.pop("forward", None)  # hooked with collectives; hides the class's own
    whole._parameters = {
        name: nn.Parameter(_full(parameter), requires_grad=False) if parameter is not None else None
        for name, parameter in module._parameters.items()
    }
    return whole


def _full(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter.detach()
