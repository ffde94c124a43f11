"""The engine of rank 0, and its stand-in on the other ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence as Ids
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from specdec import EngineError, RequestOutput
from specdec.engine import Engine, EngineMetrics, Request
from specdec.interfaces import StepStats
from specdec_runtime.parallel.group import RankGroup
from specdec_runtime.parallel.messages import Command, Event, RaisedError
from specdec_runtime.parallel.models import SplitModels


@dataclass(frozen=True)
class StepResult:
    """Result of one or more steps."""

    outputs: list[RequestOutput]
    metrics: EngineMetrics
    last_step: StepStats | None


class DriverEngine(Engine):
    """The engine on rank 0; it sends its results to the other ranks, whose callers get the same.

    Args:
        ranks: all ranks.
        number: number of the engine.
        *parts: see `Engine`, like the next ones.
        **options: by name.
    """

    def __init__(self, ranks: RankGroup, number: int, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self._ranks, self._number = ranks, number

    def add(self, request: Request) -> None:
        """See `Engine.add`."""
        with self._ranks.leading(self._number):
            super().add(request)
            self._announce("added", (request.request_id, fingerprint(request)))

    def abort(self, request_ids: Ids[str]) -> list[RequestOutput]:
        """See `Engine.abort`."""
        if not request_ids or self._ranks.is_over:
            return super().abort(request_ids)
        with self._ranks.leading(self._number):
            outputs = super().abort(request_ids)
            self._announce("aborted", len(request_ids))
            return outputs

    def step(self) -> list[RequestOutput]:
        """See `Engine.step`."""
        with self._ranks.leading(self._number):
            outputs = super().step()
            if outputs:
                self._announce("stepped", StepResult(outputs, self.metrics, self.last_step))
            return outputs

    def _announce(self, kind: str, content: object) -> None:
        self._ranks.send(Event(self._number, kind, content))


class WorkerEngine(Engine):
    """The engine on the other ranks: it runs their part of the models and returns rank 0's results; it has none of its parts.

    Args:
        ranks: all ranks.
        number: number of the engine.
        models: this rank's part of the models.
    """

    has_work = False  # rank 0 knows, here and below
    num_sequences = (0, 0)
    kv_cache_usage = 0.0
    num_waiting_requests = 0
    proposer = None

    def __init__(self, ranks: RankGroup, number: int, models: SplitModels) -> None:
        self._ranks, self._number, self._models = ranks, number, models
        self._names: dict[str, str] = {}
        """Local request id of each unfinished request, by rank 0's request id."""
        self._is_streaming = False
        self.metrics = EngineMetrics()
        """Rank 0's metrics, as of its last output."""
        self._last_stats: StepStats | None = None

    @property
    def last_step(self) -> StepStats | None:
        """What rank 0's last step with outputs did and took; None before the first one."""
        return self._last_stats

    def add(self, request: Request) -> None:
        """Wait for rank 0 to add the same request.

        Raises:
            EngineError: if it adds a different request.
        """
        name, expected = self.until("added")
        if fingerprint(request) != expected:
            self._part(
                "was given another prompt or other sampling parameters than rank 0: every rank must ask for the same"
            )
        self._names[name] = request.request_id
        self._is_streaming = request.is_streaming

    def abort(self, request_ids: Ids[str]) -> list[RequestOutput]:
        """Wait for rank 0 to abort the same number of requests; this rank has nothing to abort itself.

        Raises:
            EngineError: if it aborts a different number of requests.
        """
        if request_ids and not self._ranks.is_over:
            if self.until("aborted") != len(request_ids):
                self._part("gives up another number of requests than rank 0")
            self._names = {theirs: own for theirs, own in self._names.items() if own not in request_ids}
        return []

    def step(self) -> list[RequestOutput]:
        """Run this rank's part of the passes until rank 0 has outputs; returns these outputs."""
        # The reader of a stream may pause between two steps.
        stepped: StepResult = self.until("stepped", is_limited=not self._is_streaming)
        self.metrics, self._last_stats = stepped.metrics, stepped.last_step
        return [replace(output, request_id=self._own_name(output)) for output in stepped.outputs]

    def _own_name(self, output: RequestOutput) -> str:
        name = self._names[output.request_id]
        if output.finished:
            del self._names[output.request_id]
        return name

    def until(self, kind: str, *, is_limited: bool = False) -> Any:
        """Execute rank 0's orders until it sends an event of a kind; returns the event's content. See `RankGroup.receive`.

        Raises:
            EngineError: if it sends a different event, or has ended. Exceptions of rank 0's own call are raised too.
        """
        while True:
            message = self._ranks.receive(is_limited=is_limited)
            if message.engine != self._number:
                self._part("works with another LLM than rank 0")
            if isinstance(message, Command):
                self._models.obey(message)
            elif isinstance(message, RaisedError):
                raise message.error
            elif message.kind != kind:
                self._part(f"waits for rank 0 to have {kind!r}, which has {message.kind!r}")
            else:
                return message.content

    def _part(self, what: str) -> NoReturn:
        """End all ranks, because this one has diverged from rank 0."""
        raise self._ranks.fail(EngineError(f"{what}; all ranks must run the same script"))


def fingerprint(request: Request) -> str:
    """Return a hash of a request's prompt and parameters."""
    first = request.sequences[0]
    params = first.params.model_dump(exclude={"logits_processors"})
    asked = (first.token_ids[: first.num_prompt_tokens].tolist(), params, request.is_streaming)
    return hashlib.sha256(repr(asked).encode()).hexdigest()
