"""Models spread over several devices: where their parts are."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_HELD_ELSEWHERE = ("cpu", "disk")


def places(model: PreTrainedModel) -> set[str]:
    """Return the devices that `device_map` has spread a model over, `disk` included; empty for a single device."""
    found = {_name(place) for place in (getattr(model, "hf_device_map", None) or {}).values()}
    return found if len(found) > 1 else set()


def offloaded(model: PreTrainedModel) -> set[str]:
    """Return where offloaded weights, fetched in every pass, are stored: the host (beside an accelerator) or the disk."""
    found = places(model)
    is_hosts_own = found <= set(_HELD_ELSEWHERE)
    return found & ({"disk"} if is_hosts_own else set(_HELD_ELSEWHERE))


def input_device(model: PreTrainedModel) -> torch.device:
    """Return the device on which a model takes its inputs and returns its logits."""
    embedding = model.get_input_embeddings()
    device = getattr(getattr(embedding, "_hf_hook", None), "execution_device", None)
    if device is None:
        return next(model.parameters()).device
    return torch.device(_name(device))


def near(module: nn.Module, model: PreTrainedModel) -> nn.Module:
    """Return a module of a model with its weights on the input device, for a proposer; a copy if they are elsewhere.

    Offloaded weights, which are fetched in every pass, are not copied.
    """
    if not places(model):
        return module
    device = input_device(model)
    devices = {parameter.device for parameter in module.parameters()}
    if devices <= {device, torch.device("meta")}:
        return module
    moved = copy.deepcopy(module)
    for name in ("_hf_hook", "_old_forward", "forward"):
        moved.__dict__.pop(name, None)
    return moved.to(device)


def _name(place: object) -> str:
    return f"cuda:{place}" if isinstance(place, int) else str(place)
