"""The messages from rank 0 to the other ranks."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from specdec import EngineError


@dataclass(frozen=True)
class Command:
    """An operation that every rank does at the same time, on its part of the models of one engine."""

    engine: int
    """Number of the engine, in order of creation within the process."""
    action: str
    """A method of `SplitModels`."""
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Event:
    """A request of rank 0's caller or its result, sent so that the callers of the other ranks get the same."""

    engine: int
    kind: str
    """`began`, `built`, `added`, `aborted` or `stepped`."""
    content: Any = None


@dataclass(frozen=True)
class RaisedError:
    """An exception raised to rank 0's caller; the group continues to work."""

    engine: int
    error: BaseException


def encode(message: Command | Event | RaisedError) -> bytes:
    """Return a message as bytes; an exception that cannot be pickled and unpickled is sent as its text."""
    if not isinstance(message, RaisedError):
        return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    try:
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        pickle.loads(data)
        return data
    except Exception:
        text = f"{type(message.error).__name__}: {message.error}"
        return pickle.dumps(RaisedError(message.engine, EngineError(text)), pickle.HIGHEST_PROTOCOL)


def decode(data: bytes) -> Command | Event | RaisedError:
    """Decode a message made by `encode`. It is unpickled, because the ranks of one job trust each other."""
    message: Command | Event | RaisedError = pickle.loads(data)
    return message
