"""Engines in this process that share one copy of the target; a second copy would not fit on most GPUs."""

from __future__ import annotations

from importlib.metadata import version
from time import perf_counter
from typing import Any

import torch
from common.protocol import Ready, Reply
from common.variant import Variant
from common.worker import WorkerEngine
from workers.specdec_worker import SpecdecEngine
from workers.transformers_worker import make_engine

from device.models import Models
from specdec import LLM


class LocalContestant:
    """One engine in this process."""

    def __init__(self, engine: WorkerEngine, ready: Ready) -> None:
        self._engine = engine
        self.ready = ready

    def generate(self, prompts: list[list[int]], max_tokens: int) -> Reply:
        """Generate one batch."""
        start = perf_counter()
        token_ids = self._engine.generate(prompts, max_tokens)
        return Reply(token_ids=token_ids, wall_s=perf_counter() - start, counters=self._engine.counters())

    def cpu_seconds(self) -> float:
        """Return 0, since the engine has no thread that could run while it is idle."""
        return 0.0


class LocalPool:
    """Creates contestants on first use.

    Args:
        models: the target and its draft.
        max_model_len: maximum tokens of a request.
    """

    def __init__(self, models: Models, max_model_len: int) -> None:
        self._models = models
        self._max_model_len = max_model_len
        self._made: dict[Variant, LocalContestant] = {}

    def get(self, variant: Variant) -> LocalContestant:
        """Return a variant, loaded once."""
        if variant not in self._made:
            start = perf_counter()
            engine = self._engine(variant)
            ready = Ready(
                config=variant.config,
                versions=_versions(),
                num_threads=torch.get_num_threads(),
                load_s=perf_counter() - start,
            )
            self._made[variant] = LocalContestant(engine, ready)
        return self._made[variant]

    def _engine(self, variant: Variant) -> WorkerEngine:
        if variant.engine == "transformers":
            return make_engine(self._models.second_target(), variant.settings)
        settings: dict[str, Any] = variant.settings
        return SpecdecEngine(
            LLM(
                model=self._models.target,
                max_model_len=self._max_model_len,
                max_num_seqs=1,
                speculative_config=settings.get("speculative_config"),
                skip_tokenizer_init=True,
                enable_prefix_caching=False,
                seed=0,
            )
        )


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("specdec-core", "torch", "transformers")}
