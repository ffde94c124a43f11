"""A worker process, seen from the comparison."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import psutil

from common.protocol import Load, Ready, Reply, Request
from common.variant import Variant

BENCHMARKS = Path(__file__).resolve().parent.parent
_TAIL = 2000
_GRACE_S = 20.0


class WorkerError(RuntimeError):
    """A worker ended or answered with an error; the message contains the end of its output."""


class EngineProcess:
    """One engine in one configuration, loaded once, blocked on its standard input between requests.

    Args:
        variant: what to load.
        load: the first message.
        python: interpreter of the engine's environment.
        environment: environment variables in addition to this process's.
        prefix: command put before the interpreter, such as `chrt -r 1`.

    Raises:
        WorkerError: if it cannot be loaded.
    """

    def __init__(
        self,
        variant: Variant,
        load: Load,
        python: str,
        environment: Mapping[str, str],
        prefix: Sequence[str] = (),
    ) -> None:
        self.variant = variant
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self._process = subprocess.Popen(
            [*prefix, python, "-m", f"workers.{variant.engine}_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            text=True,
            cwd=BENCHMARKS,
            env={**os.environ, **environment},
        )
        self._watch = psutil.Process(self._process.pid)
        try:
            self.ready = cast(Ready, self._ask(load))
        except WorkerError:
            self.close()
            raise

    def generate(self, prompts: list[list[int]], max_tokens: int) -> Reply:
        """Generate one batch.

        Raises:
            WorkerError: if the worker fails or returns too few or too many tokens.
        """
        request = Request(config=self.variant.config, prompts=prompts, max_tokens=max_tokens)
        reply = cast(Reply, self._ask(request))
        counts = [len(row) for row in reply["token_ids"]]
        if counts != [max_tokens] * len(prompts):
            raise WorkerError(f"{self.variant.name}: {max_tokens} tokens each were asked for, got {counts}")
        return reply

    def cpu_seconds(self) -> float:
        """Processor time used so far by all threads and child processes."""
        total = 0.0
        for process in [self._watch, *self._watch.children(recursive=True)]:
            times = process.cpu_times()
            total += times.user + times.system
        return total

    def close(self) -> None:
        """End the worker by closing its standard input; kill it if it does not exit."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._printed.close()

    def _ask(self, message: Load | Request) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the worker ended"}
        if "error" in answer:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_S)  # it is about to print its traceback
            raise WorkerError(f"{self.variant.name}: {answer['error']}\n{self._tail()}")
        return answer

    def _tail(self) -> str:
        """The end of what the worker printed."""
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - _TAIL))
        return self._printed.read().decode("utf-8", "replace")
