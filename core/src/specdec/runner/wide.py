"""Forward passes in wider arithmetic over the same weights: the reference that faster forms are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.float32: torch.float64}
"""The reference dtype of each dtype; float64 is its own reference."""


@contextmanager
def in_wider_arithmetic(module: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Run `module` in `dtype` within the context.

    Each submodule's weights are converted only while that submodule runs, so there is never a second copy of the model.

    Args:
        module: a module with floating-point parameters, called from one thread.
        dtype: see `WIDER`.
    """
    held: dict[nn.Module, dict[str, nn.Parameter | None]] = {}

    def widen(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        held[part] = dict(part._parameters)
        for name, parameter in part._parameters.items():
            if parameter is not None and parameter.is_floating_point():
                part._parameters[name] = nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
        return tree_map(cast, args), tree_map(cast, kwargs)

    def restore(part: nn.Module, *_: object) -> None:
        part._parameters.update(held.pop(part))

    def cast(value: Any) -> Any:
        is_number = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if is_number else value

    handles = []
    for part in module.modules():
        if part._parameters:
            handles.append(part.register_forward_pre_hook(widen, with_kwargs=True))
            handles.append(part.register_forward_hook(restore, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for part in list(held):
            restore(part)
