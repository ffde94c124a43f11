"""Finds the modules of a model that adapters can be added to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import nn


class LinearMap(NamedTuple):
    """A module that a pass calls once, with a row for each of its own."""

    module: nn.Module
    num_inputs: int
    num_outputs: int
    device: torch.device


def find_linear_maps(model: nn.Module, num_rows: int, run: Callable[[], object]) -> dict[str, LinearMap]:
    """Return the maps of a model by name, found in a pass.

    Experts are called with the rows that were routed to them, and layers with states with those of one request: which requests
    these are of, their modules are not told.

    Args:
        model: the model.
        num_rows: rows of the pass T, of several requests.
        run: runs it.
    """
    calls: dict[str, list[LinearMap | None]] = {}

    def note(name: str, module: nn.Module, args: tuple[object, ...], output: object) -> None:
        x = args[0] if args else None
        found = None
        if isinstance(x, torch.Tensor) and x.dim() > 1 and isinstance(output, torch.Tensor):
            is_all = x.shape[-2] == num_rows and x.numel() == num_rows * x.shape[-1]
            if is_all and output.shape[:-1] == x.shape[:-1]:
                found = LinearMap(module, x.shape[-1], output.shape[-1], x.device)
        calls.setdefault(name, []).append(found)

    handles = [module.register_forward_hook(partial(note, name)) for name, module in model.named_modules()]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return {name: found[0] for name, found in calls.items() if len(found) == 1 and found[0] is not None}
