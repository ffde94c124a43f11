"""What suites are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Question:
    """A conversation to be had: what the user says, turn by turn."""

    number: int
    """Its index in the suite, from 0: the same in every sample."""
    category: str
    turns: tuple[str, ...]


@dataclass(frozen=True)
class Suite:
    """The questions of a published benchmark."""

    name: str
    file: Path
    questions: tuple[Question, ...]
    tasks: Mapping[str, str] = field(default_factory=dict)
    """For a category the task that it is reported under; categories that are missing are their own task."""

    def task(self, question: Question) -> str:
        """Return the task that a question is reported under."""
        return self.tasks.get(question.category, question.category)
