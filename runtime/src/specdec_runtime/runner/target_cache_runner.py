"""Runs a form of the target on the target's own cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from specdec.errors import ModelError
from specdec.interfaces import DraftSlots
from specdec_runtime.interfaces.chain import Chains, ChainWork, NewRows
from specdec_runtime.interfaces.forward import ForwardOutput, PackedBatch
from specdec_runtime.runner.runner import ModuleRunner


class TargetCacheRunner(ModuleRunner):
    """A `ModuleRunner` without a cache of its own; see `Capability.TARGET_CACHE`.

    Args:
        module: the form.
        target: the runner of the target, whose cache is used from `allocate` on.
        slots: where this step's drafts may be written.
        **settings: see `ModuleRunner`.

    Raises:
        ModelError: if a layer's keys and values are not of the shape that the target's have.
    """

    def __init__(self, module: nn.Module, target: ModuleRunner, slots: DraftSlots, **settings: Any) -> None:
        super().__init__(
            module, target.device, target.max_context, pass_memory=target.pass_memory, **settings
        )
        self._target, self._slots = target, slots
        ours, theirs = self.cache.shapes, target.cache.shapes
        wrong = [layer for layer, shape in ours.items() if theirs.get(layer) != shape]
        if wrong:
            raise ModelError(
                f"layer {wrong[0]} of this form of the target writes {ours[wrong[0]]}, and the target's cache has "
                f"{theirs.get(wrong[0])} there: keep the target's layer_idx, sizes and dtype"
            )

    @property
    def bytes_per_token(self) -> int:
        """0: the cache is the target's."""
        return 0

    def allocate(self, num_slots: int) -> None:
        """Run on the target's cache from now on, which is allocated."""
        self.use(self._target.cache)

    def forward(
        self, batch: PackedBatch, features: torch.Tensor | None = None, stage: int = 0
    ) -> ForwardOutput:
        """Run a pass over rows that are reserved for drafts.

        Raises:
            PluginError: if it would write rows that are not reserved for drafts; likewise the next two.
        """
        for segment in batch.segments:
            self._slots.check(segment.first_slot, segment.num_cached, segment.kv_len)
        return super().forward(batch, features, stage)

    def draft_chain(self, output: ForwardOutput, work: ChainWork) -> Chains:
        """Draft a chain for each row, within the rows that are reserved for drafts."""
        self._check(work, [0] * len(work.first_slots))
        return super().draft_chain(output, work)

    def draft_after(self, rows: NewRows, work: ChainWork) -> Chains:
        """Run new rows, then draft a chain for each request, within the rows that are reserved for drafts."""
        self._check(work, rows.counts)
        return super().draft_after(rows, work)

    def _check(self, work: ChainWork, num_new: Any) -> None:
        for first_slot, cached, new in zip(work.first_slots, work.num_cached, num_new, strict=True):
            self._slots.check(first_slot, cached, cached + new + work.num_steps - 1)
