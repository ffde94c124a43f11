"""Threads for work that may never end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


class DaemonThreads:
    """Runs each piece of work at once, on a thread that has nothing to do or a new one. None keeps the process from ending.

    Args:
        name: of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._idle = threading.Semaphore(0)

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Return what is going to come of a piece of work."""
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
            except BaseException as error:  # whoever waits for it is told
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
            del future, work
            self._idle.release()
