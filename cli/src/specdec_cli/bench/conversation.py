"""Requests that follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Conversation(Protocol):
    """A series of prompts, each of which may depend on the answers to the previous ones."""

    def prompt(self, answers: Sequence[str]) -> tuple[int, ...] | None:
        """Return the prompt that follows these answers, as token ids; None if nothing follows."""
        ...


@dataclass(frozen=True)
class OnePrompt:
    """A single prompt and its answer."""

    token_ids: tuple[int, ...]

    def prompt(self, answers: Sequence[str]) -> tuple[int, ...] | None:
        """Return the prompt, and None once it is answered."""
        return None if answers else self.token_ids
