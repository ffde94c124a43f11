"""Whether a model is still what an engine was made from."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

WeightsState = tuple[object, ...]
"""Address, size and version of every parameter, and which adapters are active."""

_OF_ADAPTERS = ("_active_adapter", "_disable_adapters", "merged_adapters", "scaling")
"""What a layer of PEFT is switched by; its weights stay as they are."""


def weights_state(model: PreTrainedModel) -> WeightsState:
    """Return what changes when weights are replaced or written to, as by an optimizer, or adapters are switched.

    Writing through `parameter.data` goes unseen, as it does in autograd.
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
    except RuntimeError:  # made in inference mode: nothing counts what is written to it
        return -1
