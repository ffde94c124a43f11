"""One engine process: started, asked whether it is well, ended."""

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
"""Seconds that an engine has to end in, of which its requests get the first few."""


class EngineEndedError(Exception):
    """An engine process ended before it was ready.

    Args:
        index: which one.
        code: its exit code; a signal's number below 0.
    """

    def __init__(self, index: int, code: int) -> None:
        how = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
        super().__init__(f"engine {index} ended {how} while it started")
        self.code = code


class EngineProcess:
    """A process that serves one engine at a Unix socket.

    Args:
        index: its number, from 0.
        command: what runs in it.
        task: what it reads from its standard input, which then stays open: it ends when that closes, and so with this process.
        socket_path: where it listens.
        environment: of it.
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
        """Requests that are being relayed to it."""
        self.num_served = 0
        """Requests that were ever relayed to it."""
        self._command, self._task, self._socket_path, self._environment = (
            command,
            task,
            socket_path,
            environment,
        )
        self._process: Process | None = None
        # A connection for each request: one that is kept may be closed by the engine just when it is used again.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        # Nothing is encrypted here, and the certificates of the world need not be read.
        transport = httpx2.AsyncHTTPTransport(uds=str(socket_path), limits=limits, verify=False)
        self.client = httpx2.AsyncClient(
            transport=transport, base_url="http://engine", timeout=None, trust_env=False
        )

    async def start(self) -> None:
        """Start the process and wait until it serves.

        Raises:
            EngineEndedError: if it ends before.
        """
        self._socket_path.unlink(missing_ok=True)
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, env=self._environment, start_new_session=True
        )
        self._process = process
        assert process.stdin is not None
        with suppress(ConnectionError):  # it has ended already, which is told below
            process.stdin.write(self._task)
            await process.stdin.drain()
        while process.returncode is None:
            if self._socket_path.exists() and await self._is_well():
                self.is_ready = True
                return
            await asyncio.sleep(_POLL_S)
        raise EngineEndedError(self.index, process.returncode)

    async def until_failed(self) -> str:
        """Wait until the process has ended, or its engine has failed; return which, with the process ended."""
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
        """End the process; its requests have a few seconds."""
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
        """Return what the engine says of itself; None if it says nothing."""
        try:
            answer = await self.client.get("/health", timeout=_HEALTH_TIMEOUT_S)
        except httpx2.TransportError:
            return None
        return bool(answer.status_code == 200)


def environment_of(num_engines: int) -> dict[str, str]:
    """Return the environment of one of so many engines: the cores are divided, unless OMP_NUM_THREADS says otherwise."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"OMP_NUM_THREADS": str(max(1, cores // num_engines))} | os.environ
