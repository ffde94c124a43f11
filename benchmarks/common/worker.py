"""The worker's side of the protocol. Runs in every engine's environment: standard library only."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from typing import IO, Protocol, cast

from common.protocol import Counters, Failure, Load, Ready, Reply, Request


class WorkerEngine(Protocol):
    """A loaded engine in one configuration."""

    def generate(self, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        """Return `max_tokens` greedy tokens for every prompt, generated as one batch."""
        ...

    def counters(self) -> Counters:
        """Return totals since the start; may be empty."""
        ...


def serve(
    load: Callable[[Load], WorkerEngine], distributions: Sequence[str], num_threads: int | None = None
) -> None:
    """Load the engine that the first line requests, then answer each line until standard input ends.

    Args:
        load: makes the engine.
        distributions: distributions whose installed versions are reported.
        num_threads: of the engine; None for torch's number.
    """
    answers = _take_over_stdout()
    try:
        order = cast(Load, json.loads(sys.stdin.readline()))
        start = time.perf_counter()
        engine = load(order)
        ready = Ready(
            config=order["config"],
            versions=_versions(distributions),
            num_threads=_num_torch_threads() if num_threads is None else num_threads,
            load_s=time.perf_counter() - start,
        )
        _send(answers, ready)
        for line in sys.stdin:
            request = cast(Request, json.loads(line))
            if request["config"] != order["config"]:
                raise ValueError(f"this worker runs {order['config']!r}, not {request['config']!r}")
            _send(answers, _answer(engine, request))
    except Exception as error:
        _send(answers, Failure(error=f"{type(error).__name__}: {error}"))
        raise


def _answer(engine: WorkerEngine, request: Request) -> Reply:
    start = time.perf_counter()
    token_ids = engine.generate(request["prompts"], request["max_tokens"])
    wall_s = time.perf_counter() - start
    return Reply(token_ids=token_ids, wall_s=wall_s, counters=engine.counters())


def _take_over_stdout() -> IO[str]:
    """Reserve standard output for answers; redirect the engine's output to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _send(answers: IO[str], message: Ready | Reply | Failure) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _versions(distributions: Sequence[str]) -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in distributions:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _num_torch_threads() -> int:
    torch = sys.modules.get("torch")
    return 1 if torch is None else int(torch.get_num_threads())
