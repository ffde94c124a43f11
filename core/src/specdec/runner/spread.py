"""Support for models spread over several devices: attention runs on each layer's device, with its keys and values there."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from specdec.interfaces.attention import Attention
from specdec.interfaces.forward import PackedBatch
from specdec.interfaces.kv_cache import KVCache
from specdec.runner.sdpa import SdpaAttention

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


class SpreadAttention:
    """Torch's attention on each device that has layers; see `specdec.interfaces.Attention`.

    Args:
        cache: a cache that holds each layer's keys and values on that layer's device.
        max_context: maximum sequence length, in tokens.
    """

    def __init__(self, cache: KVCache, max_context: int) -> None:
        self._cache, self._max_context = cache, max_context
        self._attentions: dict[torch.device, Attention] = {}
        self._batch: PackedBatch | None = None
        self._moved: dict[torch.device, PackedBatch] = {}

    def attend(
        self,
        layer: int,
        batch: PackedBatch,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `Attention.attend`."""
        device = query.device
        if device not in self._attentions:
            self._attentions[device] = SdpaAttention(self._cache, self._max_context)
        if batch is not self._batch:
            self._batch, self._moved = batch, {}
        if device not in self._moved:
            self._moved[device] = _moved(batch, device)
        return self._attentions[device].attend(
            layer, self._moved[device], query, key, value,
            scaling=scaling, window=window, softcap=softcap, sinks=sinks,
        )  # fmt: skip


def _moved(batch: PackedBatch, device: torch.device) -> PackedBatch:
    """Return a pass with the tensors that attention reads moved to a device."""
    if batch.token_ids.device == device:
        return batch
    return replace(batch, slots=None if batch.slots is None else batch.slots.to(device))


def _name(place: object) -> str:
    return f"cuda:{place}" if isinstance(place, int) else str(place)
