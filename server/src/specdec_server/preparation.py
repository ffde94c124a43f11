"""Tokenizes prompts and compiles grammars outside the event loop, so no request delays the others."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from time import monotonic
from typing import TypeVar

from specdec_runtime.structured_outputs import deadline
from specdec_server.errors import ApiError
from specdec_server.threads import DaemonThreads

Result = TypeVar("Result")
_MAX_OVERDUE = 8
"""Maximum tasks that may still run after their timeout, since threads cannot be cancelled."""


class Preparation:
    """Runs the preparation of requests before they are queued, several at once, each with a timeout.

    No client can occupy all places, and the client with the fewest places is next.

    Args:
        timeout_s: maximum seconds that a task may run, and may wait for a place.
        num_places: number of concurrent tasks.
    """

    def __init__(self, timeout_s: float, num_places: int | None = None) -> None:
        self._timeout_s = timeout_s
        self._num_places = num_places or max(2, min(4, os.cpu_count() or 1))
        self._threads = DaemonThreads("specdec-prepare")
        self._running: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._num_overdue = 0

    @property
    def num_requests(self) -> int:
        """How many tasks run within their timeout or wait to run."""
        return self._running.total() + sum(map(len, self._waiting.values()))

    def close(self) -> None:
        """End the threads that wait for tasks, and the others when their task ends."""
        self._threads.close()

    async def run(self, work: Callable[[], Result], client: str) -> Result:
        """Return the result of a task.

        Raises:
            ApiError: if it runs or waits too long.
        """
        await self._enter(client)
        try:
            context = copy_context()
            context.run(deadline.set, monotonic() + self._timeout_s)  # a grammar that takes longer is ended
            future = asyncio.wrap_future(self._threads.submit(partial(context.run, work)))
        except BaseException:
            self._leave(client)
            raise
        is_done = False
        try:
            await asyncio.wait((future,), timeout=self._timeout_s)
            is_done = future.done()
            if is_done:
                return future.result()
        finally:
            if is_done:
                self._leave(client)
            else:
                self._abandon(future, client)
        raise ApiError(
            f"tokenizing the prompt and compiling its grammar took longer than {self._timeout_s:g} s, the server's "
            "--prepare-timeout: shorten the prompt, or make the grammar simpler",
            code="prepare_timeout",
        )

    async def _enter(self, client: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self._admit()
        try:
            async with asyncio.timeout(self._timeout_s):
                await turn
        except BaseException as end:
            is_granted = turn.done() and not turn.cancelled()
            if not is_granted:
                self._forget(turn, client)
            if isinstance(end, TimeoutError):
                if is_granted:  # in the same turn of the event loop
                    return
                raise ApiError(
                    "the server is busy preparing other requests: send this one again later",
                    503,
                    headers={"Retry-After": "5"},
                ) from None
            if is_granted:
                self._leave(client)
            raise

    def _forget(self, turn: asyncio.Future[None], client: str) -> None:
        """Remove a task that no longer waits, unless `_admit` has removed it."""
        turns = self._waiting.get(client)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[client]

    def _admit(self) -> None:
        most = max(1, self._num_places - 1)
        while self._running.total() < self._num_places:
            clients = [client for client in self._waiting if self._running[client] < most]
            if not clients:
                return
            client = min(clients, key=lambda name: self._running[name])
            turns = self._waiting[client]
            turn = turns.popleft()
            self._waiting.move_to_end(client)
            if not turns:
                del self._waiting[client]
            if not turn.done():
                self._running[client] += 1
                turn.set_result(None)

    def _leave(self, client: str) -> None:
        self._running -= Counter({client: 1})
        self._admit()

    def _abandon(self, future: asyncio.Future[Result], client: str) -> None:
        """Free the place of an overdue task, unless too many tasks are overdue."""
        is_counted = self._num_overdue < _MAX_OVERDUE
        if is_counted:
            self._num_overdue += 1
            self._leave(client)

        def end(future: asyncio.Future[Result]) -> None:
            future.cancelled() or future.exception()
            if is_counted:
                self._num_overdue -= 1
            else:
                self._leave(client)

        future.add_done_callback(end)
