"""The stand-in for the engine on the ranks behind the first, with rank 0's messages written by hand."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from specdec import ConfigError, EngineError, SamplingParams
from specdec.engine.metrics import EngineMetrics
from specdec.engine.request import Request
from specdec.engine.sequence import Sequence
from specdec.outputs import RequestMetrics, RequestOutput
from specdec_runtime.parallel.engines import StepResult, WorkerEngine, fingerprint
from specdec_runtime.parallel.messages import Command, Event, RaisedError


class Ranks:
    """Rank 0 as a list of messages."""

    is_over = False

    def __init__(self, *messages: Command | Event | RaisedError) -> None:
        self._messages: Iterator[Command | Event | RaisedError] = iter(messages)
        self.limits: list[bool] = []

    def receive(self, *, is_limited: bool = False) -> Command | Event | RaisedError:
        self.limits.append(is_limited)
        return next(self._messages)

    def fail(self, error: BaseException) -> EngineError:
        return EngineError(f"failed: {error}")


class Models:
    """Keeps the orders it is given."""

    def __init__(self) -> None:
        self.orders: list[str] = []

    def obey(self, order: Command) -> None:
        self.orders.append(order.action)


def engine(*messages: Command | Event | RaisedError) -> tuple[WorkerEngine, Models]:
    models = Models()
    ranks: Any = Ranks(*messages)
    kept: Any = models
    return WorkerEngine(ranks, 1, kept), models


def request(name: str, ids: list[int], **params: Any) -> Request:
    sequence = Sequence(
        name, np.array(ids, np.int32), SamplingParams(**params), seed=0, sample_index=0, max_num_tokens=9
    )
    return Request(name, None, [sequence], is_streaming=False)


def output(name: str) -> RequestOutput:
    metrics = RequestMetrics(0, 0, 0, [], None, 0.0)
    return RequestOutput(name, None, [1], [], finished=True, metrics=metrics)


def test_it_runs_passes_until_there_are_outputs_under_its_own_names() -> None:
    mine = request("mine", [1, 2])
    added = Event(1, "added", ("theirs", fingerprint(mine)))
    metrics = EngineMetrics()
    stepped = Event(1, "stepped", StepResult([output("theirs")], metrics, None))
    worker, models = engine(added, Command(1, "run_pass", ()), Command(1, "copy_rows", ()), stepped)
    ranks: Any = worker._ranks
    worker.add(mine)
    assert [shown.request_id for shown in worker.step()] == ["mine"]
    assert models.orders == ["run_pass", "copy_rows"]
    assert worker.metrics is metrics
    assert worker._names == {}
    assert ranks.limits == [False, True, True, True]


def test_as_many_are_aborted() -> None:
    mine = request("mine", [1, 2])
    added = Event(1, "added", ("theirs", fingerprint(mine)))
    worker, _ = engine(added, Event(1, "aborted", 1))
    worker.add(mine)
    assert worker.abort(["mine"]) == []
    assert worker._names == {}
    worker, _ = engine(Event(1, "aborted", 2))
    with pytest.raises(EngineError, match="gives up another number of requests than rank 0"):
        worker.abort(["mine"])


def test_seeds_and_temperatures_are_part_of_what_is_asked_and_names_are_not() -> None:
    asked = fingerprint(request("a", [1], seed=3))
    assert asked == fingerprint(request("b", [1], seed=3))
    assert asked != fingerprint(request("a", [1], seed=4))
    assert asked != fingerprint(request("a", [2], seed=3))


def test_what_rank_0_raises_is_raised() -> None:
    worker, _ = engine(RaisedError(1, ConfigError("a prompt of 9 tokens does not fit")))
    with pytest.raises(ConfigError, match="does not fit"):
        worker.add(request("mine", [1]))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Event(1, "added", ("theirs", "something else")), "another prompt or other sampling parameters"),
        (Event(1, "stepped"), "waits for rank 0 to have 'added', which has 'stepped'"),
        (Event(2, "added", ("theirs", "")), "works with another LLM"),
    ],
)
def test_ranks_that_part_end(message: Event, reason: str) -> None:
    worker, _ = engine(message)
    with pytest.raises(EngineError, match=f"failed: .*{reason}.*; all ranks must run the same script"):
        worker.add(request("mine", [1]))
