"""Which process and which threads may use an engine, and the threads of OpenMP that they leave behind."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock, get_ident

from specdec.errors import EngineError

_made_in: int | None = None
_SOFT = 1
"""`omp_pause_soft` of OpenMP 5: released resources come back when they are needed."""


def enter_process() -> None:
    """Note that this process makes an engine.

    Raises:
        EngineError: as `check_process`.
    """
    global _made_in
    check_process()
    _made_in = os.getpid()


def is_fork() -> bool:
    """Return whether this process is a fork of one that has made an engine."""
    return _made_in is not None and _made_in != os.getpid()


def check_process() -> None:
    """Check that engines can run in this process.

    Raises:
        EngineError: if this is a fork of a process that has made one.
    """
    if is_fork():
        raise EngineError(
            f"process {os.getpid()} is a fork of process {_made_in}, which has made an LLM, so none can run here: fork before "
            "making one, or start this process with multiprocessing's method 'spawn'"
        )


class FairLock:
    """A lock that waiting threads get in turn: a plain one goes back to the thread that has just released it."""

    def __init__(self) -> None:
        self._next = Lock()
        """Held by the thread that gets the next turn."""
        self._turn = Lock()
        self._owner: int | None = None

    @property
    def is_own(self) -> bool:
        """Whether the calling thread has the turn."""
        return self._owner == get_ident()

    @property
    def is_wanted(self) -> bool:
        """Whether another thread waits for the turn."""
        return self._next.locked()

    @contextmanager
    def take(self) -> Iterator[None]:
        """Wait for a turn and keep it during the `with` block.

        Raises:
            EngineError: if the calling thread has the turn already.
        """
        if self.is_own:
            raise EngineError(
                "an LLM was called from inside one of its own steps (by a logits processor, an observer or a proposer), "
                "which waits for the call: use another LLM there"
            )
        with self._next:
            self._turn.acquire()
        self._owner = get_ident()
        try:
            yield
        finally:
            self._owner = None
            if self.is_wanted:
                release_threads()  # the next thread has OpenMP threads of its own
            self._turn.release()


def release_threads() -> None:
    """End the threads that OpenMP keeps for the calling thread, until this thread works in parallel again.

    GNU's OpenMP counts the threads that it keeps for all calling threads. If there are more than processors, waiting threads
    sleep at once instead of spinning for a while, and a pass of a small model, with a hundred short waits, takes five times
    as long. On other platforms and with other OpenMP libraries nothing happens.
    """
    for pause in _pauses(len(sys.modules)):
        pause(_SOFT)


@lru_cache(maxsize=1)
def _pauses(num_modules: int) -> list[Callable[[int], int]]:
    """Return the pause function of each libgomp of this process; `num_modules` makes imports trigger a new search."""
    if not sys.platform.startswith("linux"):
        return []
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found: list[Callable[[int], int]] = []
    for path in sorted({line.split()[-1] for line in maps if "libgomp" in line}):
        with suppress(OSError, AttributeError):  # the file is gone, or OpenMP is older than version 5
            found.append(ctypes.CDLL(path).omp_pause_resource_all)
    return found
