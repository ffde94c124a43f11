"""Questions and suites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Question:
    """The user's side of a conversation, turn by turn."""

    number: int
    """Index in the suite, from 0; the same in every sample."""
    category: str
    turns: tuple[str, ...]


@dataclass(frozen=True)
class Suite:
    """The questions of a published benchmark."""

    name: str
    file: Path
    questions: tuple[Question, ...]
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Maps a category to the task that it is reported under; a missing category is its own task."""

    def task(self, question: Question) -> str:
        """Return the task that a question is reported under."""
        return self.tasks.get(question.category, question.category)
