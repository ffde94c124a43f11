"""Generates the load and measures the server."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import psutil

from load.client import Server
from load.hostile import be_hostile

NUM_HOSTILE = 4


@dataclass(frozen=True)
class Question:
    """A request whose answer is known."""

    prompt: str
    params: dict[str, Any]
    token_ids: list[int]
    """Output of an engine without a server and without drafts."""


@dataclass
class Report:
    """Observations of a load test."""

    num_right: int = 0
    num_wrong: int = 0
    num_left: int = 0
    """Streams whose client disconnected."""
    errors: Counter[str] = field(default_factory=Counter)
    hostile: Counter[str] = field(default_factory=Counter)
    health_s: list[float] = field(default_factory=list)
    short_s: list[float] = field(default_factory=list)
    """Latencies of two-token completions."""
    rss: list[int] = field(default_factory=list)
    """Resident memory of the server in bytes, every second."""


async def run_load(
    server: Server, process: psutil.Process, questions: list[Question], num_streams: int, seconds: float
) -> Report:
    """Run the load test for `seconds`."""
    report = Report()
    work: list[Coroutine[Any, Any, None]] = [
        *(_stream(server, questions, seed, report) for seed in range(num_streams)),
        *(be_hostile(server, 1000 + seed, report.hostile) for seed in range(NUM_HOSTILE)),
        _health(server, report),
        _short(server, report),
        _memory(process, report),
    ]
    tasks = [asyncio.create_task(each) for each in work]
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()  # an error of our own
    return report


async def _stream(server: Server, questions: list[Question], seed: int, report: Report) -> None:
    rng = random.Random(seed)
    while True:
        question = rng.choice(questions)
        num_tokens = rng.choice((8, 32, len(question.token_ids)))
        leaves = rng.random() < 0.15
        body = {
            "prompt": question.prompt,
            **question.params,
            "max_tokens": num_tokens,
            "return_token_ids": True,
        }
        try:
            events = await server.events("/v1/completions", body, num=3 if leaves else None)
        except (RuntimeError, ConnectionError, IndexError) as error:
            report.errors[str(error)[:200]] += 1
            continue
        told = [event["error"]["message"] for event in events if "error" in event]
        ids = [
            token for event in events for choice in event.get("choices", ()) for token in choice["token_ids"]
        ]
        wanted = question.token_ids[: len(ids) if leaves else num_tokens]
        if told:
            report.errors[told[0][:200]] += 1
        elif ids != wanted:
            report.num_wrong += 1
        else:
            report.num_right += 1
            report.num_left += leaves


async def _health(server: Server, report: Report) -> None:
    while True:
        begun = time.perf_counter()
        status, _ = await server.ask("/health")
        report.health_s.append(time.perf_counter() - begun)
        if status != 200:
            report.errors[f"/health: {status}"] += 1
        await asyncio.sleep(0.05)


async def _short(server: Server, report: Report) -> None:
    """Request two tokens at intervals, as a separate client."""
    while True:
        begun = time.perf_counter()
        headers = "X-Forwarded-For: 10.1.1.1\r\n"
        status, answer = await server.ask("/v1/completions", {"prompt": "def f(", "max_tokens": 2}, headers)
        report.short_s.append(time.perf_counter() - begun)
        if status != 200:
            report.errors[f"{status} {answer[:200]!r}"] += 1
        await asyncio.sleep(0.25)


async def _memory(process: psutil.Process, report: Report) -> None:
    while True:
        report.rss.append(process.memory_info().rss)
        await asyncio.sleep(1.0)


async def counters(server: Server) -> dict[str, float]:
    """Return the values of `/metrics` by name, summed over labels."""
    _, text = await server.ask("/metrics")
    found: Counter[str] = Counter()
    for line in text.decode().splitlines():
        if line[0] != "#":
            name, value = line.rsplit(" ", 1)
            found[name.partition("{")[0]] += float(value)  # type: ignore[assignment]  # counts of seconds too
    return dict(found)


async def until_idle(server: Server, seconds: float) -> dict[str, float]:
    """Wait until no request runs or waits, or for `seconds`; return the counters."""
    deadline = time.monotonic() + seconds
    while True:
        found = await counters(server)
        is_busy = found["vllm:num_requests_running"] or found["vllm:num_requests_waiting"]
        if not is_busy or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.5)


def as_text(body: object) -> str:
    """Return a value as indented JSON."""
    return json.dumps(body, indent=1)
