"""Reads what was chosen on a device by one transfer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch


def read_together(tensors: list[torch.Tensor]) -> list[npt.NDArray[np.float64]]:
    """Return tensors `[R, n]` of ids below 2^53 and float32 numbers as arrays, all read together."""
    if tensors[0].device.type == "cpu":
        return [tensor.double().numpy() for tensor in tensors]
    ends = np.cumsum([tensor.shape[1] for tensor in tensors])[:-1]
    return np.split(torch.cat([tensor.double() for tensor in tensors], 1).cpu().numpy(), ends, 1)
