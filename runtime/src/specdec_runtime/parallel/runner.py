"""Runs one model whose weights are split over the ranks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

from specdec_runtime.interfaces.forward import ForwardOutput, PackedBatch
from specdec_runtime.interfaces.kv_cache import KVCache
from specdec_runtime.parallel.passes import as_pass_arrays
from specdec_runtime.runner import ModuleRunner

if TYPE_CHECKING:
    from specdec_runtime.parallel.models import SplitModels

logger = logging.getLogger("specdec")


class SplitCache(KVCache):
    """Keys and values of this rank's heads; moving rows moves those of all ranks.

    Args:
        num_slots: see `KVCache`.
        device: ditto.
        models: the split models, through which the other ranks are told.
        number: number of the runner.
    """

    def __init__(self, num_slots: int, device: torch.device, models: SplitModels, number: int) -> None:
        super().__init__(num_slots, device)
        self._models, self._number = models, number

    def copy(self, source: int, destination: int, num_rows: int) -> None:
        """See `KVCache.copy`."""
        self._models.broadcast("copy_rows", self._number, source, destination, num_rows)
        super().copy(source, destination, num_rows)

    def gather(self, first_slots: torch.Tensor, paths: torch.Tensor) -> None:
        """See `KVCache.gather`."""
        self._models.broadcast("gather_rows", self._number, first_slots.tolist(), paths.tolist())
        super().gather(first_slots, paths)


class SplitRunner(ModuleRunner):
    """A `ModuleRunner` whose passes all ranks run together; rank 0 sends each pass to the others.

    The model's own forward runs, with the collectives that `transformers` inserts.

    Args:
        model: the model, split by `transformers`.
        device: this rank's device.
        max_context: maximum sequence length, in tokens.
        models: the split models of the engine, to which this runner is added.
        **settings: see `ModuleRunner`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        device: torch.device,
        max_context: int,
        models: SplitModels,
        **settings: Any,
    ) -> None:
        self._models = models
        self._number = models.add(self)
        super().__init__(model, device, max_context, is_fused=False, **settings)

    def make_cache(self, num_slots: int) -> KVCache:
        """See `ModuleRunner.make_cache`."""
        return SplitCache(num_slots, self.device, self._models, self._number)

    def allocate(self, num_slots: int) -> None:
        """See `ModuleRunner.allocate`; runs on all ranks."""
        super().allocate(num_slots)
        self._models.broadcast("allocate", self._number, num_slots)

    def forward(
        self, batch: PackedBatch, features: torch.Tensor | None = None, stage: int = 0
    ) -> ForwardOutput:
        """See `ModuleRunner.forward`; runs on all ranks."""
        self._models.broadcast("run_pass", self._number, as_pass_arrays(batch), self.cache.shared)
        with self._models.ranks.together():
            return super().forward(batch)
