"""Runners with KV caches of their own for a proposer's models."""

from __future__ import annotations

import torch
from torch import nn

from specdec import EngineOptions
from specdec.interfaces import DraftSlots, PassMemory
from specdec_runtime.interfaces.attention import AttentionFactory
from specdec_runtime.runner import ModuleRunner
from specdec_runtime.runner.target_cache_runner import TargetCacheRunner

_BATCHES = 2
"""Requests of a proposer's batch, as a multiple of those that run: beside them are those that ended in the last step."""


class RunnerFactory:
    """Makes a proposer's runners, and allocates their caches once the number of slots is known.

    Args:
        options: the engine's options; they say whether backends may run models.
        device: where models run.
        max_model_len: the longest context, in tokens.
        make_attention: makes attention for a cache; never batch-invariant, because drafts are only guesses.
        pass_memory: the engine's; None makes one.
    """

    def __init__(
        self,
        options: EngineOptions,
        device: torch.device,
        max_model_len: int,
        make_attention: AttentionFactory | None = None,
        pass_memory: PassMemory | None = None,
    ) -> None:
        self.pass_memory = pass_memory or PassMemory.on(device)
        self.runners: list[ModuleRunner] = []
        """Every runner made before `allocate`."""
        self.make_attention = make_attention
        self._is_fused = not options.enforce_eager
        self._device = device
        self._max_model_len = max_model_len
        self._num_requests = _BATCHES * options.max_num_seqs
        self._num_slots = 0

    @property
    def state_bytes(self) -> int:
        """Bytes of the states that `allocate` allocates beside the caches."""
        kept = [runner.states for runner in self.runners if runner.states is not None]
        return self._num_requests * sum(states.bytes_per_request(is_prefix_cached=False) for states in kept)

    def make_runner(self, module: nn.Module) -> ModuleRunner:
        """Make a runner for a causal language model or a `DraftHead`; see `TargetHandle.make_runner`."""
        runner = ModuleRunner(
            module,
            self._device,
            self._max_model_len,
            is_fused=self._is_fused,
            make_attention=self.make_attention,
            is_draft=True,
            pass_memory=self.pass_memory,
        )
        self.register(runner)
        return runner

    def make_target_runner(
        self, module: nn.Module, target: ModuleRunner, slots: DraftSlots
    ) -> TargetCacheRunner:
        """Make a runner for a form of the target on the target's cache; see `TargetHandle.make_target_runner`."""
        runner = TargetCacheRunner(
            module, target, slots, is_fused=self._is_fused, make_attention=self.make_attention, is_draft=True
        )
        self.register(runner)
        return runner

    def begin(self) -> None:
        """Forget all runners: proposers make new ones before the next `allocate`."""
        self.runners, self._num_slots = [], 0

    def allocate(self, num_slots: int) -> None:
        """Give every runner a cache of `num_slots` tokens, including runners made later."""
        self._num_slots = num_slots
        for runner in self.runners:
            self._allocate(runner)

    def register(self, runner: ModuleRunner) -> None:
        """Register a runner without a cache; if sizes are known already, allocate its cache instead."""
        if self._num_slots:
            self._allocate(runner)  # many proposers may share one target, which keeps none of them
        else:
            self.runners.append(runner)

    def _allocate(self, runner: ModuleRunner) -> None:
        runner.allocate(self._num_slots)
        if runner.states is not None:
            runner.states.allocate(self._num_requests, block_size=0)
