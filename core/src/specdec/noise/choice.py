"""The operations on rows of logits of this process."""

from __future__ import annotations

from functools import cache

import torch

from specdec import registry
from specdec.backends.row_operations import choose_row_operations
from specdec.interfaces.backend import Backend
from specdec.interfaces.row_operations import RowOperations
from specdec.noise.torch_rows import TorchRows


def row_operations(device: torch.device) -> RowOperations:
    """Return the operations for tensors on a device; chosen once for each device and set of backends."""
    return _chosen(device, registry.backends())


@cache
def _chosen(device: torch.device, backends: tuple[Backend, ...]) -> RowOperations:
    return choose_row_operations(device, TorchRows(device))
