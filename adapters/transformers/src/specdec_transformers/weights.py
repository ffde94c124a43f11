"""Detects changes of a model since its engine was created."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

WeightsState = tuple[object, ...]
"""Address, size and version of every parameter, and the active adapters."""

_OF_ADAPTERS = ("_active_adapter", "_disable_adapters", "merged_adapters", "scaling")
"""Attributes that switch a PEFT layer without changing its weights."""


def weights_state(model: PreTrainedModel) -> WeightsState:
    """Return a state that changes when weights are replaced or written to, as by an optimizer, or adapters are switched.

    Writes through `parameter.data` are not detected, as in autograd.
    """
    weights = ((p.data_ptr(), p.numel(), _version(p)) for p in model.parameters())
    layers = (module for module in model.modules() if hasattr(module, "_active_adapter"))
    switches = (str([getattr(layer, name, None) for name in _OF_ADAPTERS]) for layer in layers)
    return (*weights, *switches)


def has_hooks(model: PreTrainedModel) -> bool:
    """Return whether any module has forward hooks, which fused layers would not call."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def _version(parameter: torch.Tensor) -> int:
    try:
        return parameter._version
    except RuntimeError:  # created in inference mode: writes are not counted
        return -1
