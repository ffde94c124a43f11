"""Runners with core's KV caches for a proposer's models."""

from __future__ import annotations

import torch
from torch import nn

from specdec.engine_options import EngineOptions
from specdec.runner.attention_backend import backend_factory
from specdec.runner.cached_runner import CachedRunner
from specdec.runner.graphs import Recorder
from specdec.runner.head import DraftHead
from specdec.runner.head_runner import HeadRunner
from specdec.runner.model_runner import ModelRunner


class Lender:
    """Makes a proposer's runners, and allocates their caches once the number of slots is known.

    Args:
        options: the engine's options; they say whether layers may be fused.
        device: where models run.
        max_model_len: the longest context, in tokens.
        backend: name of the attention backend; never batch-invariant, because drafts are only guesses.
        recorder: records passes as graphs, or None.
    """

    def __init__(
        self,
        options: EngineOptions,
        device: torch.device,
        max_model_len: int,
        backend: str,
        recorder: Recorder | None = None,
    ) -> None:
        self.runners: list[CachedRunner] = []
        """Every runner made before `allocate`."""
        self._is_fused = not options.enforce_eager
        self._device = device
        self._max_model_len = max_model_len
        self.make_backend = backend_factory(backend)
        self._recorder = recorder
        self._num_slots = 0

    def make_runner(self, model: nn.Module) -> ModelRunner:
        """Make a runner for a causal language model; see `TargetHandle.make_runner`."""
        from transformers import PreTrainedModel  # takes seconds, and listing plugins does not need it

        assert isinstance(model, PreTrainedModel)
        runner = ModelRunner(
            model,
            self._device,
            self._max_model_len,
            fused=self._is_fused,
            make_backend=self.make_backend,
            recorder=self._recorder,
            is_draft=True,
        )
        self.lend(runner)
        return runner

    def make_head_runner(self, head: DraftHead) -> HeadRunner:
        """Make a runner for a head that reads the target's hidden states."""
        runner = HeadRunner(
            head,
            self._device,
            self._max_model_len,
            fused=self._is_fused,
            make_backend=self.make_backend,
            recorder=self._recorder,
        )
        self.lend(runner)
        return runner

    def allocate(self, num_slots: int) -> None:
        """Give every runner a cache of `num_slots` tokens, including runners made later."""
        self._num_slots = num_slots
        for runner in self.runners:
            runner.allocate(num_slots)

    def lend(self, runner: CachedRunner) -> None:
        """Register a runner without a cache; if sizes are known already, allocate its cache instead."""
        if self._num_slots:
            runner.allocate(self._num_slots)  # many proposers may share one target, which keeps none of them
        else:
            self.runners.append(runner)
