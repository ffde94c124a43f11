"""Daemon threads for work that may never finish."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


class DaemonThreads:
    """Runs each task immediately, on an idle thread or a new one. The threads do not keep the process alive.

    Args:
        name: of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._idle = threading.Semaphore(0)

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Start a task and return its future."""
        future: Future[Result] = Future()
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        self._work.put((future, work))
        return future

    def _run(self) -> None:
        while True:
            future, work = self._work.get()
            try:
                result = work()
            except BaseException as error:  # passed to the future
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
            del future, work
            self._idle.release()
