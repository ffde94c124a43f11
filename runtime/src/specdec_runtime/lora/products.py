"""Adds the products of adapters to the linear maps of a pass, on the rows of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from threading import get_ident
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from specdec_runtime.interfaces.forward import PackedBatch
from specdec_runtime.lora.adapter import LoadedAdapter, LowRank
from specdec_runtime.models.parts import keeps_logits_rows, output_head

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_Part = tuple[LowRank, torch.Tensor | None]
"""Products and the rows they are added to; None for all."""


@contextmanager
def adapted(model: PreTrainedModel, batch: PackedBatch) -> Iterator[None]:
    """Have the maps of a model add the adapters of a pass on this thread; the modules are as before when it ends."""
    adapters = [s.adapter for s in batch.segments if isinstance(s.adapter, LoadedAdapter)]
    parts: defaultdict[nn.Module, list[_Part]] = defaultdict(list)
    head = output_head(model) if adapters else None
    for adapter in dict.fromkeys(adapters):
        rows = cache(partial(_rows_of, adapter, batch))
        for module, low_rank in adapter.maps.items():
            is_cut = module is head and keeps_logits_rows(model)
            parts[module].append((low_rank, rows(is_cut, low_rank.down.device)))
    thread = get_ident()  # engines on other threads may share the model
    handles = [module.register_forward_hook(partial(_add, thread, each)) for module, each in parts.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _rows_of(
    adapter: LoadedAdapter, batch: PackedBatch, is_cut: bool, device: torch.device
) -> torch.Tensor | None:
    """Return the rows of an adapter's requests, among those whose logits are needed if only these are run; None for all."""
    is_own = np.zeros(batch.num_rows, bool)
    for segment in batch.segments:
        is_own[segment.row : segment.row + segment.num_rows] = segment.adapter is adapter
    if is_cut and batch.logits_rows is not None:
        is_own = is_own[batch.logits_rows.cpu().numpy() if batch.host is None else batch.host.logits_rows]
    return None if is_own.all() else torch.from_numpy(np.flatnonzero(is_own)).to(device)


def _add(
    thread: int, parts: list[_Part], module: nn.Module, args: tuple[torch.Tensor], output: torch.Tensor
) -> torch.Tensor:
    if get_ident() == thread:
        x = args[0]
        for low_rank, rows in parts:
            if rows is None:
                output = output + low_rank(x).to(output.dtype)
            else:
                output = output.index_add(-2, rows, low_rank(x.index_select(-2, rows)).to(output.dtype))
    return output
