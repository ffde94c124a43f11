"""Tries grammars in processes of their own, which can be ended: nothing else stops xgrammar from compiling for hours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from contextvars import ContextVar
from multiprocessing import Pipe
from time import monotonic
from typing import Any

from specdec.errors import ConfigError
from specdec.grammar.compiling import GrammarSource, json_of
from specdec.grammar.worker import MEMORY_BYTES
from specdec.structured_outputs import StructuredOutputsParams

MAX_SECONDS = 30.0
"""The longest that a grammar is tried, if the caller sets no deadline."""
_START_SECONDS = 60.0
_MAX_PROCESSES = 4
deadline: ContextVar[float | None] = ContextVar("deadline", default=None)
"""When, by `time.monotonic`, the caller gives up. A grammar is tried for half of the time until then, since compiling it for
use takes as long again."""


class _Trier:
    """One process.

    Args:
        facts: xgrammar's `TokenizerInfo` as JSON.
    """

    def __init__(self, facts: bytes) -> None:
        self._connection, theirs = Pipe()
        self._is_ready = False
        self._parent = os.getpid()
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "specdec.grammar.worker", str(number)],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is for this process
            )
        self._connection.send_bytes(facts)

    def ask(self, params: str, seconds: float) -> dict[str, Any] | None:
        """Return the answer to a constraint as JSON; None if there is none in time, or the process has ended.

        Raises:
            ConfigError: if the process does not start.
        """
        if not self._is_ready:
            self._await_ready()
        try:
            self._connection.send_bytes(f'{{"params": {params}, "seconds": {seconds}}}'.encode())
            if not self._connection.poll(seconds):
                return None
            answer: dict[str, Any] = json.loads(self._connection.recv_bytes())
            return answer
        except (EOFError, OSError):
            return None

    def _await_ready(self) -> None:
        try:
            self._is_ready = (
                self._connection.poll(_START_SECONDS) and self._connection.recv_bytes() == b"ready"
            )
        except (EOFError, OSError):
            self._is_ready = False
        if not self._is_ready:
            raise ConfigError(
                "structured_outputs: the process that compiles grammars did not start; what it wrote is in the log: reinstall "
                'xgrammar, pip install "specdec-core[grammar]"'
            )

    def end(self) -> None:
        """End the process, whatever it does; in a fork of this process, leave it alone."""
        if os.getpid() == self._parent:
            self._process.kill()
            self._process.wait()
        self._connection.close()


class GrammarTrials:
    """Tries grammars, several at a time. Processes start when they are needed, and one is kept.

    Args:
        facts: xgrammar's `TokenizerInfo` as JSON.
    """

    def __init__(self, facts: str) -> None:
        self._facts = facts.encode()
        self._places = threading.BoundedSemaphore(_MAX_PROCESSES)
        self._lock = threading.Lock()
        self._idle: list[_Trier] = []
        self._all: set[_Trier] = set()
        self._is_closed = False
        self._finalize = weakref.finalize(self, _end_all, self._all)

    def run(self, params: StructuredOutputsParams) -> GrammarSource:
        """Return a constraint that compiles in time, as xgrammar enforces it.

        Raises:
            ConfigError: if it is invalid, cannot be enforced, or takes too much time or memory.
        """
        given = json_of(params)
        end = deadline.get()
        seconds = MAX_SECONDS if end is None else max(0.1, (end - monotonic()) / 2)
        if not self._places.acquire(timeout=seconds):
            raise ConfigError("structured_outputs: other grammars are being compiled: try again later")
        try:
            answer = self._answer(given, seconds)
        finally:
            self._places.release()
        if answer is None:
            raise ConfigError(
                f"SamplingParams: structured_outputs {params.kind!r} takes more than {seconds:.3g} s or "
                f"{MEMORY_BYTES // 2**20} MiB to compile: make it simpler"
            )
        if "error" in answer:
            raise ConfigError(answer["error"])
        return GrammarSource(**answer["source"])

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            self._is_closed = True
        self._finalize()

    def _answer(self, params: str, seconds: float) -> dict[str, Any] | None:
        with self._lock:
            if self._is_closed:
                raise ConfigError("structured_outputs: the engine has been shut down")
            trier = self._idle.pop() if self._idle else _Trier(self._facts)
            self._all.add(trier)
        answer = None
        try:
            answer = trier.ask(params, seconds)
        finally:
            with self._lock:
                is_kept = answer is not None and not (answer["is_last"] or self._idle or self._is_closed)
                if is_kept:
                    self._idle.append(trier)
                else:
                    self._all.discard(trier)
            if not is_kept:
                trier.end()
        return answer


def _end_all(triers: set[_Trier]) -> None:
    while triers:
        triers.pop().end()
