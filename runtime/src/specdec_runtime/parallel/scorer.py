"""The scorer of a target that is split over the ranks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from specdec import EngineOptions
from specdec.interfaces import TargetHandle
from specdec_runtime.loading import LoadedTarget, load_draft
from specdec_runtime.parallel.group import RankGroup
from specdec_runtime.parallel.models import SplitModels
from specdec_runtime.parallel.runner import SplitRunner
from specdec_runtime.parallel.whole_module import whole_module
from specdec_runtime.runner import ModuleRunner
from specdec_runtime.scorers import TransformersScorer

logger = logging.getLogger("specdec")


class SplitScorer(TransformersScorer):
    """A `TransformersScorer` on each rank; only rank 0's computes scores.

    Args:
        ranks: all ranks.
        needs_ends: whether the proposer, which runs on rank 0, uses the target's embedding and output projection.
    """

    name: ClassVar[str] = "transformers"
    supports_device_nodes: ClassVar[bool] = False  # other ranks are told the ids

    def __init__(self, ranks: RankGroup, *, needs_ends: bool) -> None:
        self._ranks = ranks
        self._needs_ends = needs_ends
        self.models = SplitModels(ranks, self._load_part, self._make_part_runner)

    def load(self, options: EngineOptions) -> TargetHandle:
        """Load this rank's part of the target; called by all ranks at the same time."""
        size = self._ranks.size
        device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
        if torch.device(device).type == "cuda":
            torch.cuda.set_device(self._ranks.rank)
            options = replace(options, device=f"cuda:{self._ranks.rank}")
        if not self._ranks.is_leader:
            transformers_logging.disable_progress_bar()
        with self._ranks.together():
            handle = super().load(options)
            ends = (handle.embed_tokens, handle.lm_head)
            if self._needs_ends:
                ends = whole_module(ends[0]), whole_module(ends[1])
        info = replace(handle.info, tensor_parallel_size=size)
        return replace(
            handle,
            info=info,
            embed_tokens=ends[0],
            lm_head=ends[1],
            runner_factory=self._make_runner,
            model_loader=partial(load_draft, replace(options, tensor_parallel_size=1), self._elsewhere),
            target_runner_factory=None,
            cache_reader_factory=None,
            part_loader=lambda path, **arguments: self.models.load_draft({"path": path, **arguments}),
        )

    def capture_hidden(self, aux_layer_ids: Sequence[int]) -> None:
        """Return hidden states with every pass from now on; runs on all ranks."""
        super().capture_hidden(aux_layer_ids)
        self.models.broadcast("capture_hidden", tuple(aux_layer_ids))

    def make_runner(self, target: LoadedTarget, **settings: Any) -> ModuleRunner:
        """Return the target's runner, split over the ranks."""
        if settings.pop("is_fused"):
            logger.warning(
                "%s: no fused form of a model that is split over %d ranks; the model's own forward runs instead, on the CPU "
                "two to four times slower", type(target.model).__name__, self._ranks.size,
            )  # fmt: skip
        return self._counted(
            SplitRunner(target.model, target.device, target.max_model_len, self.models, **settings)
        )

    def _counted(self, runner: SplitRunner) -> SplitRunner:
        runner.may_fuse = not self.options.enforce_eager
        return runner

    def _load_part(self, arguments: dict[str, Any]) -> PreTrainedModel:
        return load_draft(self.options, self._elsewhere, **arguments)

    @property
    def _elsewhere(self) -> LoadedTarget:
        """The target without its path, so that no draft shares its weights: each rank has only a part of them."""
        return replace(self.target, path=None)

    def _make_runner(self, module: nn.Module) -> ModuleRunner:
        number = self.models.number_of(module)
        return (
            self._runner_factory.make_runner(module)
            if number is None
            else self.models.make_draft_runner(number)
        )

    def _make_part_runner(self, model: PreTrainedModel) -> SplitRunner:
        runner = SplitRunner(
            model,
            self.target.device,
            self.target.max_model_len,
            self.models,
            make_attention=self._runner_factory.make_attention,
            is_draft=True,
        )
        self._runner_factory.register(runner)
        return self._counted(runner)
