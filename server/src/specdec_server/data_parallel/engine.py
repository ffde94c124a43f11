"""One engine process: start, health checks and stop."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx2

from specdec_server.http import GRACE_S

_POLL_S = 0.05
_WATCH_S = 1.0
_HEALTH_TIMEOUT_S = 10.0
_KILL_AFTER_S = GRACE_S + 10.0
"""Seconds before an engine that does not end is killed; its requests may finish in the first few."""


class EngineEndedError(Exception):
    """An engine process ended before it was ready.

    Args:
        index: its number.
        code: its exit code; the negative signal number if a signal ended it.
    """

    def __init__(self, index: int, code: int) -> None:
        how = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
        super().__init__(f"engine {index} ended {how} while it started")
        self.code = code


class EngineProcess:
    """A process that serves one engine at a Unix socket.

    Args:
        index: its number, from 0.
        command: of the process.
        task: written to its standard input, which then stays open; the process ends when it closes, so with this process.
        socket_path: where it listens.
        environment: of the process.
    """

    def __init__(
        self,
        index: int,
        command: Sequence[str],
        task: bytes,
        socket_path: Path,
        environment: Mapping[str, str],
    ) -> None:
        self.index = index
        self.is_ready = False
        self.num_running = 0
        """Requests currently relayed to it."""
        self.num_served = 0
        """Total requests relayed to it."""
        self._command, self._task, self._socket_path, self._environment = (
            command,
            task,
            socket_path,
            environment,
        )
        self._process: Process | None = None
        # One connection per request, since the engine may close a kept-alive connection just when it is reused.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        # Connections are not encrypted, so CA certificates need not be loaded.
        transport = httpx2.AsyncHTTPTransport(uds=str(socket_path), limits=limits, verify=False)
        self.client = httpx2.AsyncClient(
            transport=transport, base_url="http://engine", timeout=None, trust_env=False
        )

    async def start(self) -> None:
        """Start the process and wait until it is ready.

        Raises:
            EngineEndedError: if it ends before that.
        """
        self._socket_path.unlink(missing_ok=True)
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, env=self._environment, start_new_session=True
        )
        self._process = process
        assert process.stdin is not None
        with suppress(ConnectionError):  # the process has already ended; reported below
            process.stdin.write(self._task)
            await process.stdin.drain()
        while process.returncode is None:
            if self._socket_path.exists() and await self._is_well():
                self.is_ready = True
                return
            await asyncio.sleep(_POLL_S)
        raise EngineEndedError(self.index, process.returncode)

    async def until_failed(self) -> str:
        """Wait until the process has ended or its engine has failed; stop the process and return the reason."""
        assert self._process is not None
        while True:
            with suppress(TimeoutError):
                code = await asyncio.wait_for(self._process.wait(), _WATCH_S)
                self.is_ready = False
                return f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
            if await self._is_well() is False:
                await self.stop()
                return "failed"

    async def stop(self) -> None:
        """Stop the process; its requests have a few seconds to finish."""
        self.is_ready = False
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _KILL_AFTER_S)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _is_well(self) -> bool | None:
        """Return whether the engine reports healthy; None if it does not answer."""
        try:
            answer = await self.client.get("/health", timeout=_HEALTH_TIMEOUT_S)
        except httpx2.TransportError:
            return None
        return bool(answer.status_code == 200)


def environment_of(num_engines: int) -> dict[str, str]:
    """Return the environment of one of `num_engines` engines: cores are divided evenly unless OMP_NUM_THREADS is set."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"OMP_NUM_THREADS": str(max(1, cores // num_engines))} | os.environ
