"""Runs hostile and honest clients against a server of its own, and reports what they saw."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from openai import OpenAI

from servercheck.load.honest import Seen, ask, requests, text_of
from servercheck.load.hostile import attack

SPECDEC = str(Path(sys.executable).with_name("specdec"))
NGRAM = '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}'
HONEST, HOSTILE = "honest-key", "hostile-key"


@dataclass(frozen=True)
class Plan:
    """How long and against what."""

    seconds: float = 12.0
    model: str = "zoo"
    num_hostile: int = 3
    num_honest: int = 2
    settle_s: float = 2.0
    """Seconds after which the server must be idle again."""


@dataclass(frozen=True)
class Report:
    """What was seen."""

    num_right: int
    wrong: list[str]
    refused: dict[str, int]
    """Honest requests that were told to come again."""
    honest_seconds: tuple[float, float]
    """Median of an honest request on the idle server, and among hostile ones."""
    hostile: dict[str, int]
    """Hostile requests, by what is too much in them and status."""
    health_ms: dict[str, float]
    late_ms: dict[str, float]
    """How late the machine woke a process that slept, beside it."""
    memory_mib: list[int]
    """Of the server and its children: before, then the median of each tenth of the time, then after."""
    is_flat: bool
    """Whether no later tenth is above the second and third; in less than two minutes, whether it grows little."""
    num_threads: tuple[int, int]
    """Before and after."""
    idle_cores: float
    """What the server computes when all clients have left."""
    exit_code: int
    log: str
    load_average: tuple[float, ...]


def run(plan: Plan) -> Report:
    """Start a server, run all clients and return the report."""
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        command = [
            SPECDEC, "serve", plan.model, "--port", "0", "--speculative-config", NGRAM,
            "--api-key", HOSTILE, "--api-key", HONEST, "--header-timeout", "3", "--body-timeout", "3", "--prepare-timeout", "5",
            "--chat-template", "{% for m in messages %}{{ m.content }}{% endfor %}", "--max-num-seqs", "16", "--deterministic",
            "--kv-cache-memory-bytes", str(256 * 2**20),  # so small that all of it is touched early; until then memory grows
        ]  # fmt: skip
        server = subprocess.Popen(command, stderr=log)
        try:
            return _run(plan, server, Path(log.name))
        finally:
            server.kill()
            server.wait()


def _run(plan: Plan, server: subprocess.Popen[bytes], log: Path) -> Report:
    url = _address(server, log)
    port = int(url.rpartition(":")[2])
    expected, idle = [], []
    with OpenAI(base_url=f"{url}/v1", api_key=HONEST, timeout=120) as client:
        with ThreadPoolExecutor(8) as pool:  # starts the threads that the server keeps
            list(pool.map(lambda request: text_of(client, request), requests()))
        for request in requests():
            begun = time.monotonic()
            expected.append(text_of(client, request))
            idle.append(time.monotonic() - begun)
    process = psutil.Process(server.pid)
    num_threads, memory = process.num_threads(), [_memory(process)]
    seen, hostile, probed = _clients(plan, url, port, expected, process, memory)
    time.sleep(plan.settle_s)
    busy = process.cpu_times()
    time.sleep(1.0)
    after = process.cpu_times()
    memory.append(_memory(process))
    num_after = process.num_threads()
    server.send_signal(signal.SIGINT)
    exit_code = server.wait(timeout=30)
    durations = [second for each in seen for second in each.seconds]
    return Report(
        num_right=sum(each.num_right for each in seen),
        wrong=[text for each in seen for text in each.wrong],
        refused=dict(Counter(re.sub(r"\d+", "#", text) for each in seen for text in each.refused)),
        honest_seconds=(round(median(idle), 3), round(median(durations or [math.nan]), 3)),
        hostile={f"{name}: {status}": count for (name, status), count in sorted(hostile.items())},
        health_ms=_quantiles(probed["health"]),
        late_ms=_quantiles(probed["late"]),
        memory_mib=memory,
        is_flat=_is_flat(memory, plan.seconds),
        num_threads=(num_threads, num_after),
        idle_cores=round((after.user + after.system - busy.user - busy.system), 3),
        exit_code=exit_code,
        log=log.read_text(),
        load_average=os.getloadavg(),
    )


def _clients(
    plan: Plan, url: str, port: int, expected: list[str], process: psutil.Process, memory: list[int]
) -> tuple[list[Seen], Counter[tuple[str, int]], dict[str, list[float]]]:
    """Run all clients, each hostile one in a process of its own, and note the memory."""
    end, samples = threading.Event(), list[int]()

    def watch() -> None:
        while not end.wait(0.5):
            samples.append(_memory(process))

    spawned = multiprocessing.get_context("spawn")
    probe = [sys.executable, str(Path(__file__).with_name("probe.py")), str(port), str(plan.seconds)]
    with ProcessPoolExecutor(plan.num_hostile, spawned) as attackers, ThreadPoolExecutor() as pool:
        attacks = [
            attackers.submit(attack, port, HOSTILE, seed, plan.seconds) for seed in range(plan.num_hostile)
        ]
        watcher = threading.Thread(target=watch)
        watcher.start()
        asked = [
            pool.submit(ask, url, HONEST, expected, 3 * place, plan.seconds)
            for place in range(plan.num_honest)
        ]
        with subprocess.Popen(probe, stdout=subprocess.PIPE) as probing:
            out, _ = probing.communicate()
        assert probing.returncode == 0, "/health did not answer"
        found = sum((each.result() for each in attacks), Counter[tuple[str, int]]())
        end.set()
        watcher.join()
        parts = [samples[part * len(samples) // 10 : (part + 1) * len(samples) // 10] for part in range(10)]
        memory += [int(median(part)) for part in parts if part]
        return [each.result() for each in asked], found, json.loads(out)


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    """Return the server's address when it serves."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if found := re.search(r"at (http://[\d.]+:\d+)$", log.read_text(), re.MULTILINE):
            return found[1]
        assert server.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def _memory(process: psutil.Process) -> int:
    """Return the MiB that a process and its children use."""
    total = process.memory_info().rss
    for child in process.children(recursive=True):
        with suppress(psutil.Error):
            total += child.memory_info().rss
    return int(total / 2**20)


def _is_flat(memory: list[int], seconds: float) -> bool:
    if seconds < 120:
        return max(memory) < memory[0] + 1500
    return max(memory[4:]) < 1.1 * max(memory[2:4])


def _quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    parts = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    found = {
        name: round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 1)
        for name, part in parts.items()
    }
    return {"count": len(ordered), **found}


def missed(report: Report) -> list[str]:
    """Return the goals that a report misses."""
    # In a few hundred requests, one pause of the machine decides about 1 % of them.
    is_long = report.health_ms["count"] > 5000
    part, late = ("p99", 0.0) if is_long else ("p95", report.late_ms["p95"])
    failed = [name for name in report.hostile if name.rpartition(" ")[2] in ("500", "501", "502")]
    goals = {
        "honest clients get the texts of an idle server": report.num_right > 0 and not report.wrong,
        "at most 2 % of them are told to come again": sum(report.refused.values())
        <= 0.02 * report.num_right + 2,
        f"no request ends in an error of the server: {failed}": not failed,
        f"{part} of /health is less than {100 + late:.0f} ms": report.health_ms[part] < 100 + late,
        "memory stays flat": report.is_flat,
        "no thread is left": report.num_threads[1] <= report.num_threads[0] + 2,
        "the server is idle when all have left": report.idle_cores < 0.1,
        "Ctrl-C ends it": report.exit_code == 0,
        "the log has no traceback": "Traceback" not in report.log,
        "nobody forges a line of the log": not re.search(r"^2026-01-01|\x1b", report.log, re.MULTILINE),
    }
    return [goal for goal, is_met in goals.items() if not is_met]


def shown(report: Report) -> dict[str, Any]:
    """Return a report for people and for files: without the log, and with few of the wrong texts."""
    found = asdict(report)
    del found["log"]
    found["wrong"] = found["wrong"][:5]
    return {"missed": missed(report), "num_wrong": len(report.wrong), **found}
