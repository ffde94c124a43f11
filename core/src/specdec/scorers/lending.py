"""Runners, with caches of core's, for the models that a proposer runs."""

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
    """Makes a proposer's runners, and their caches once it is known how many tokens these hold.

    Args:
        options: the engine's; says whether layers may be fused.
        device: where models run.
        max_model_len: the longest context, in tokens.
        backend: name of the attention; proposers' models keep no bits, they only guess.
        recorder: what records passes, or None.
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
        from transformers import PreTrainedModel  # takes seconds, and plugins are listed without it

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
        """Make a runner for a head that reads the target's states."""
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
        """Give every runner, also those still to be made, a cache of `num_slots` tokens."""
        self._num_slots = num_slots
        for runner in self.runners:
            runner.allocate(num_slots)

    def lend(self, runner: CachedRunner) -> None:
        """Take in a runner that has no cache yet."""
        if self._num_slots:
            runner.allocate(
                self._num_slots
            )  # one of many proposers that one target is lent to, which keeps none of them
        else:
            self.runners.append(runner)
