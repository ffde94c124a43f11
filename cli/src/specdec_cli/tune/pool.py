"""The engines of the candidates that are in the running."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter

from specdec import ConfigError, EngineError, ModelError, PluginError
from specdec_cli.tune.candidate import Candidate
from specdec_cli.tune.engine import Engine, MakeEngine


class Refused(Exception):
    """An engine cannot be made or does not work; the message is one line."""


_TOLD = (ConfigError, PluginError, ModelError, EngineError, Refused)
"""Errors whose messages are for the user."""


class Pool:
    """Makes engines when they are first needed; candidates of one form share one.

    Args:
        make: makes an engine.
        clock: for tests.
    """

    def __init__(self, make: MakeEngine, clock: Callable[[], float] = perf_counter) -> None:
        self._make, self._clock = make, clock
        self._engines: dict[str, Engine] = {}
        self._refused: dict[str, str] = {}
        self.longest_s = 0.0
        """The longest time that an engine took to make."""

    def has(self, candidate: Candidate) -> bool:
        """Return whether the engine of a candidate is there, or known to fail."""
        return candidate.engine.name in self._engines or candidate.engine.name in self._refused

    def engine(self, candidate: Candidate) -> Engine:
        """Return the engine of a candidate.

        Raises:
            Refused: if it cannot be made.
        """
        name = candidate.engine.name
        if name in self._refused:
            raise Refused(self._refused[name])
        if name not in self._engines:
            started = self._clock()
            try:
                self._engines[name] = self._make(candidate.engine)
            except Exception as error:
                self._refused[name] = reason_of(error)
                raise Refused(self._refused[name]) from error
            self.longest_s = max(self.longest_s, self._clock() - started)
        return self._engines[name]

    def refuse(self, candidate: Candidate, reason: str) -> None:
        """Close an engine that failed, and use it no more."""
        self._refused[candidate.engine.name] = reason
        self._close(candidate.engine.name)

    def keep(self, candidates: Iterable[Candidate]) -> None:
        """Close the engines that none of these candidates needs."""
        needed = {candidate.engine.name for candidate in candidates}
        for name in [name for name in self._engines if name not in needed]:
            self._close(name)

    def _close(self, name: str) -> None:
        if name in self._engines:
            self._engines.pop(name).close()


def reason_of(error: BaseException) -> str:
    """Return the first line of an error; unless it was written for users, with the name of its class."""
    first = (str(error).splitlines() or [""])[0]
    return first if isinstance(error, _TOLD) else f"{type(error).__name__}: {first}"
