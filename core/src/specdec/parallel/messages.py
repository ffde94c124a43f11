"""What rank 0 tells the other ranks."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from specdec.errors import EngineError


@dataclass(frozen=True)
class Order:
    """Something that every rank does at the same time, on its part of the models of one engine."""

    engine: int
    """Which of the process's engines, by the order in which they were made."""
    action: str
    """A method of `SplitModels`."""
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Event:
    """Something that rank 0's caller asked for or got, so that the callers of the other ranks get the same."""

    engine: int
    kind: str
    """`began`, `built`, `added`, `aborted` or `stepped`."""
    content: Any = None


@dataclass(frozen=True)
class Raised:
    """An exception that rank 0's caller gets; the ranks are as they were."""

    engine: int
    error: BaseException


def encode(message: Order | Event | Raised) -> bytes:
    """Return a message as bytes; an exception that cannot be sent, or not be read again, goes as what it says."""
    if not isinstance(message, Raised):
        return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    try:
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        pickle.loads(data)
        return data
    except Exception:
        text = f"{type(message.error).__name__}: {message.error}"
        return pickle.dumps(Raised(message.engine, EngineError(text)), pickle.HIGHEST_PROTOCOL)


def decode(data: bytes) -> Order | Event | Raised:
    """Return the message in bytes that `encode` made. Ranks of one job trust each other."""
    message: Order | Event | Raised = pickle.loads(data)
    return message
