"""Tensor parallelism: what a package that splits a target over processes does for core."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence as Ids
from typing import TYPE_CHECKING, Protocol

from specdec.engine.metrics import EngineMetrics
from specdec.engine.request import Request
from specdec.interfaces.observer import StepStats
from specdec.loading.ranks import SplitLoading
from specdec.outputs import RequestOutput

if TYPE_CHECKING:
    from specdec.assembly.build import BuiltEngine
    from specdec.config import ResolvedSpeculation
    from specdec.engine_options import EngineOptions


class TensorParallel(SplitLoading):
    """Part `tensor_parallel`: one engine over several processes, whose callers all get its outputs."""

    @abstractmethod
    def check(self, size: int) -> None:
        """Check that this process is one of `size` ranks, before anything is loaded.

        Raises:
            ConfigError: if it is not; says how to start them.
        """

    @abstractmethod
    def build(self, options: EngineOptions, speculation: ResolvedSpeculation | None) -> BuiltEngine:
        """Return this rank's engine, or what stands in for it; see `assemble`. Called by all ranks.

        Raises:
            EngineError: if another rank does not join, fails, or makes a different engine.
        """


class StepEngine(Protocol):
    """What `LLM` and `AsyncLLM` drive: an `Engine`, or its stand-in on another rank."""

    metrics: EngineMetrics
    last_step: StepStats | None

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""

    @property
    def num_sequences(self) -> tuple[int, int]:
        """Number of running samples and number of waiting samples."""

    @property
    def kv_cache_usage(self) -> float:
        """Fraction of the target's KV cache that belongs to samples, 0 to 1."""

    @property
    def num_waiting_requests(self) -> int:
        """Number of requests of which no sample has started."""

    def add(self, request: Request) -> None:
        """Queue a request."""

    def abort(self, request_ids: Ids[str]) -> list[RequestOutput]:
        """Abort requests at once; unknown ids are ignored."""

    def step(self) -> list[RequestOutput]:
        """Run a step; returns the outputs of requests that ended or stream."""
