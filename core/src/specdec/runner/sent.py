"""Small tensors on their way to the device."""

from __future__ import annotations

import torch


def sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a host tensor on a device; to CUDA from pinned memory, so that the host does not wait for the copy."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
