"""Daemon threads for work that may take longer than anybody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from specdec import EngineError

Result = TypeVar("Result")


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
        self._is_closed = False

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Start a task and return its future."""
        future: Future[Result] = Future()
        if self._is_closed:
            future.set_exception(EngineError("the engine has been shut down"))
            return future
        if not self._idle.acquire(blocking=False):
            self._num_threads += 1
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        self._work.put((future, work))
        return future

    def close(self) -> None:
        """End every thread after its task; further tasks get an `EngineError`."""
        self._is_closed = True
        for _ in range(self._num_threads):
            self._work.put(None)

    def _run(self) -> None:
        while (task := self._work.get()) is not None:
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
