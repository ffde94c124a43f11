"""Daemon threads for work that may take longer than anybody waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from specdec import EngineError

Result = TypeVar("Result")
_IDLE_S = 5.0
"""Seconds without a task after which a thread ends; its memory then serves others."""


class DaemonThreads:
    """Runs each task immediately, on an idle thread or a new one. The threads do not keep the process alive.

    Args:
        name: of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._num_threads = 0
        self._lock = threading.Lock()
        self._is_closed = False

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Start a task and return its future."""
        future: Future[Result] = Future()
        if self._is_closed:
            future.set_exception(EngineError("the engine has been shut down"))
            return future
        future.set_running_or_notify_cancel()  # what has begun cannot be cancelled
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
            self._count(1)
        self._work.put((future, work))
        return future

    def close(self) -> None:
        """End every thread after its task; further tasks get an `EngineError`."""
        self._is_closed = True
        for _ in range(self._num_threads):
            self._work.put(None)

    def _count(self, change: int) -> None:
        with self._lock:
            self._num_threads += change

    def _run(self) -> None:
        while (task := self._next()) is not None:
            future, work = task
            del task
            try:
                result = work()
            except BaseException as error:  # passed to the future
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
            del future, work
            self._idle.release()
        self._count(-1)

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Return the next task; None if this thread is to end."""
        while True:
            try:
                return self._work.get(timeout=_IDLE_S)
            except Empty:
                # Without a permit, the task of this thread is on its way.
                if self._idle.acquire(blocking=False):
                    return None


_OTHERS = DaemonThreads("specdec-answer")


async def in_thread(work: Callable[..., Result], *arguments: Any) -> Result:
    """Return what a function returns, called outside the event loop."""
    called = partial(copy_context().run, work, *arguments)
    return await asyncio.wrap_future(_OTHERS.submit(called))
