"""Questions that a contender is asked in one go, before the next one has its turn with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from specdec.bench.suites.question import Question, Suite

FILLS = 4
"""How often the questions of a group fill the batch."""


@dataclass(frozen=True)
class Group:
    """Some questions of one task."""

    task: str
    category: str | None
    """None where they may be of several categories."""
    questions: tuple[Question, ...]


def grouped(suite: Suite, questions: Sequence[Question], batch_size: int) -> list[Group]:
    """Return questions in groups: one question each at batch size 1, else as many of a task as fill the batch a few times.

    Args:
        suite: where the questions are from.
        questions: those that are asked, in their order; groups keep to it as far as they can.
        batch_size: requests in flight.
    """
    if batch_size == 1:
        return [Group(suite.task(question), question.category, (question,)) for question in questions]
    by_task: dict[str, list[Question]] = {}
    for question in questions:
        by_task.setdefault(suite.task(question), []).append(question)
    size = FILLS * batch_size
    parts = [
        [Group(task, None, tuple(members[i : i + size])) for i in range(0, len(members), size)]
        for task, members in by_task.items()
    ]
    return [group for group in chain.from_iterable(zip_longest(*parts)) if group is not None]
