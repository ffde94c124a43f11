"""The models of proposers beside a host's target, run by specdec-runtime."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from specdec import EngineOptions
from specdec.interfaces import TargetHandle
from specdec_hosting.target import HostTarget
from specdec_runtime.backends import choose_attention
from specdec_runtime.interfaces import AttentionNeeds
from specdec_runtime.loading import SafetensorsReader, load_draft
from specdec_runtime.runner import SdpaAttention
from specdec_runtime.scorers import RunnerFactory, num_slots


class HostModels:
    """Loads the models of a proposer and runs them on caches of their own.

    Args:
        target: the host's.
        options: of the models.
    """

    def __init__(self, target: HostTarget, options: EngineOptions) -> None:
        attention = None
        if target.config is not None:
            needs = AttentionNeeds(target.device, target.dtype)
            attention = choose_attention(options.attention_backend, needs, target.config, SdpaAttention)
        self._target, self._options = target, options
        self._runners = RunnerFactory(options, target.device, target.max_model_len, attention)

    def handle(self) -> TargetHandle:
        """Return the handle that a proposer loads with; modules that the host lacks raise when used."""
        path = self._target.path
        has_files = path is not None and Path(path).is_dir()
        return replace(
            self._target.handle(),
            checkpoint=SafetensorsReader(Path(path)) if path is not None and has_files else None,
            pass_memory=self._runners.pass_memory,
            runner_factory=self._runners.make_runner,
            model_loader=partial(load_draft, self._options, self._target),
        )

    def allocate(self) -> None:
        """Allocate the caches of the models that the proposer has loaded.

        Raises:
            ConfigError: if one request of the maximum context length does not fit into memory.
        """
        bytes_per_token = sum(runner.bytes_per_token for runner in self._runners.runners)
        if bytes_per_token:
            self._runners.allocate(num_slots(self._options, self._target, bytes_per_token, needed=lambda: 0))
