"""Measures the memory that an object holds."""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

_SHARED = (type, ModuleType, CodeType, BuiltinFunctionType)


def reachable_bytes(root: object) -> int:
    """Return the bytes reachable from an object, including array and tensor memory, without classes and modules."""
    seen: set[int] = set()
    storages: set[int] = set()
    total = 0
    stack: list[Any] = [root]
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, _SHARED):
            continue
        seen.add(id(item))
        total += sys.getsizeof(item)
        if isinstance(item, np.ndarray):
            if item.base is not None:
                stack.append(item.base)
        elif isinstance(item, torch.Tensor):
            if item.layout == torch._mkldnn:  # type: ignore[attr-defined]  # it is there; such a tensor has no storage to ask
                total += item.numel() * item.element_size()
                continue
            storage = item.untyped_storage()
            if storage.data_ptr() not in storages:
                storages.add(storage.data_ptr())
                total += storage.nbytes()
        if isinstance(item, FunctionType):  # its closure, not the module it is defined in
            stack.extend(item.__closure__ or ())
        else:
            stack.extend(gc.get_referents(item))
    return total
