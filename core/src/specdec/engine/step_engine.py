"""What `LLM` and `AsyncLLM` drive: an engine, or its stand-in on another rank."""

from __future__ import annotations

from collections.abc import Sequence as Ids
from typing import Protocol

from specdec.engine.metrics import EngineMetrics
from specdec.engine.request import Request
from specdec.interfaces.observer import StepStats
from specdec.outputs import RequestOutput


class StepEngine(Protocol):
    """Runs requests step by step; see `Engine`."""

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
