"""Whether a model is still what an engine was made from."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

WeightsState = tuple[tuple[int, int, int], ...]
"""Address, size and version of every parameter."""


def weights_state(model: PreTrainedModel) -> WeightsState:
    """Return what changes when weights are replaced or written to, as by an optimizer or an adapter.

    Writing through `parameter.data` goes unseen, as it does in autograd.
    """
    return tuple((p.data_ptr(), p.numel(), _version(p)) for p in model.parameters())


def has_hooks(model: PreTrainedModel) -> bool:
    """Return whether any module has forward hooks, which fused layers would not call."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def _version(parameter: torch.Tensor) -> int:
    try:
        return parameter._version
    except RuntimeError:  # made in inference mode: nothing counts what is written to it
        return -1
