"""Rounded weights on disk, by the content of those that they were made of: rounding a model takes seconds for each gigabyte."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from specdec.folders import cache_folder
from specdec_runtime.interfaces import QuantizedLinear

logger = logging.getLogger("specdec")

_FORMAT = "2"
"""Changes with the way weights are rounded or stored."""
_LEAST_WEIGHTS = 2**25
"""A model with fewer is rounded as fast as it is read."""
_MOST_FILES = 4
"""Files that are kept, those that were used last."""


def kept_file(linears: Mapping[str, nn.Linear], wanted: Mapping[str, str], group_size: int) -> Path | None:
    """Return the file for the rounded weights of a model; None if they are not kept.

    Args:
        linears: the maps to be rounded, by name.
        wanted: `int8`, `int4` or `auto` of each.
        group_size: inputs per group in 4 bits.
    """
    weights = {name: linear.weight.detach() for name, linear in linears.items()}
    if sum(weight.numel() for weight in weights.values()) < _LEAST_WEIGHTS or any(
        weight.device.type != "cpu" for weight in weights.values()
    ):
        return None
    content = sha256(f"{_FORMAT} {group_size}".encode())
    for name, weight in weights.items():
        content.update(f"{name} {wanted[name]} {weight.dtype} {tuple(weight.shape)}".encode())
        content.update(weight.contiguous().view(torch.uint8).numpy().data)
    return cache_folder() / "self" / f"{content.hexdigest()[:32]}.safetensors"


def read(file: Path, linears: Mapping[str, nn.Linear]) -> dict[str, QuantizedLinear]:
    """Return the maps of a file; none if it is not there or cannot be read."""
    if not os.path.exists(file):
        return {}
    try:
        found = load_file(file)
        with suppress(OSError):  # on a file system that is only read no file is ever the oldest
            os.utime(file)
        return {
            name: QuantizedLinear(found[f"{name}.packed"], found[f"{name}.scales"], _bias(linear))
            for name, linear in linears.items()
        }
    except (OSError, SafetensorError, KeyError) as error:
        logger.warning("self: cannot read %s (%s): the weights are rounded again", file, error)
        return {}


def write(file: Path, rounded: Mapping[str, QuantizedLinear]) -> None:
    """Write rounded maps to a file, which is whole or not there; where none can be written the next start rounds again."""
    tensors = {}
    for name, linear in rounded.items():
        tensors[f"{name}.packed"], tensors[f"{name}.scales"] = linear.packed, linear.scales
    own = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, own)
        own.replace(file)
        kept = sorted(file.parent.glob("*.safetensors"), key=lambda other: other.stat().st_mtime)
        for old in kept[:-_MOST_FILES]:
            old.unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            own.unlink()
        logger.info("self: rounded weights are not kept: %s", error)


def _bias(linear: nn.Linear) -> torch.Tensor | None:
    bias: torch.Tensor | None = linear.bias
    return None if bias is None else bias.detach()
