"""Precision of training steps, bfloat16 if the processor supports it, else float32; rounding of trained weights."""

from __future__ import annotations

from functools import cache
from typing import TypeVar

import torch
from torch import nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@cache
def matmul_dtype(device_type: str = "cpu") -> torch.dtype:
    """The dtype of matrix products in training; weights and optimizer state stay in float32."""
    if device_type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    has_units = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if device_type == "cpu" and has_units else torch.float32


def autocast(device_type: str = "cpu") -> torch.autocast:
    """A context in which matrix products run in `matmul_dtype`."""
    kind = device_type if device_type in ("cpu", "cuda") else "cpu"
    return torch.autocast(kind, torch.bfloat16, enabled=matmul_dtype(device_type) == torch.bfloat16)


def round_to_bfloat16(model: ModuleT) -> ModuleT:
    """Round trained weights in place to bfloat16 values, stored in float32 for fast arithmetic on CPUs."""
    with torch.no_grad():
        for param in model.parameters():
            if param.requires_grad:
                param.copy_(param.bfloat16())
    return model
