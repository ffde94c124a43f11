"""Reads PEFT's `adapter_model.safetensors`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from specdec.errors import ConfigError
from specdec_runtime.lora.adapter import LowRank
from specdec_runtime.lora.linear_maps import LinearMap
from specdec_runtime.lora.peft_config import PeftConfig

_OWN = re.compile(r"base_model\.model\.(.+)\.base_layer\.weight")
_TENSOR = re.compile(r"base_model\.model\.(.+)\.(lora_[AB])\.weight")


def read_weights(
    file: Path, config: PeftConfig, maps: Mapping[str, LinearMap], dtype: torch.dtype
) -> dict[nn.Module, LowRank]:
    """Return an adapter's products by module, on the devices of these.

    Args:
        file: the file.
        config: the adapter's configuration.
        maps: the model's linear maps by name.
        dtype: of the products.

    Raises:
        ConfigError: naming the tensor that is missing, of another shape, or of a module that is not among the maps.
    """
    try:
        tensors = load_file(file)
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    found: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        match = _TENSOR.fullmatch(name)
        if match is None:
            if _is_own(
                name, tensor, maps
            ):  # PEFT saves the weights of an output projection with its products
                continue
            raise ConfigError(f"{file} has {name!r}: only lora_A and lora_B of linear maps are served")
        found.setdefault(match[1], {})[match[2]] = tensor
    for target in config.targets or ("",):
        if not any(f".{name}".endswith(f".{target}" if target else "") for name in found):
            raise ConfigError(f"{file} has no tensors of {target or 'any module'}: save the adapter again")
    products = {}
    for name, pair in found.items():
        place = maps.get(name)
        if place is None:
            raise ConfigError(
                f"{file} changes {name!r}, which is not a linear map that this model runs for all rows of a pass"
            )
        rank = config.rank_of(name)
        for part, shape in (("lora_A", (rank, place.num_inputs)), ("lora_B", (place.num_outputs, rank))):
            if part not in pair or pair[part].shape != shape:
                has = "is missing" if part not in pair else f"has shape {tuple(pair[part].shape)}"
                raise ConfigError(
                    f"{file}: {part} of {name!r} {has}, and {shape} fits the model and the rank"
                )
        down, up = (pair[part].to(place.device, dtype) for part in ("lora_A", "lora_B"))
        products[place.module] = LowRank(down, up, config.scaling_of(name))
    return products


def _is_own(name: str, tensor: torch.Tensor, maps: Mapping[str, LinearMap]) -> bool:
    """Return whether a tensor is the model's own weight, unchanged."""
    match = _OWN.fullmatch(name)
    place = None if match is None else maps.get(match[1])
    weight = None if place is None else getattr(place.module, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.shape != tensor.shape:
        return False
    return torch.equal(weight.cpu(), tensor.to(weight.dtype))
