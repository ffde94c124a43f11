"""The messages from rank 0 to the other ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Command:
    """An operation that every rank does at the same time, on its part of the models."""

    action: str
    """A method of `SplitModels`."""
    arguments: tuple[Any, ...]
