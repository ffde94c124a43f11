"""Finds operations that synchronise the host with the device."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_WAITING = frozenset({"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "_unique2"})


class FindSynchronisation(TorchDispatchMode):
    """Records every operation whose result the host needs, or that determines the shape of a tensor."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types here
        self.found: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record the operation and run it."""
        name = str(func.overloadpacket.__name__)
        flat = [item for arg in args for item in (arg if isinstance(arg, list | tuple) else [arg])]
        has_mask = any(isinstance(item, torch.Tensor) and item.dtype == torch.bool for item in flat)
        if name in _WAITING or (name.startswith("index") and has_mask):
            self.found.add(name)
        return func(*args, **(kwargs or {}))
