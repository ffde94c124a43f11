"""Lets several threads use one engine, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident

from specdec.engine.openmp import release_threads
from specdec.errors import EngineError


class Turns:
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
            if self._next.locked():
                release_threads()  # the next thread has OpenMP threads of its own
            self._turn.release()
