"""Groups of questions that one contender answers before the next contender gets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from specdec_cli.bench.suites.question import Question, Suite

FILLS = 4
"""How often the questions of a group fill the batch."""


@dataclass(frozen=True)
class Group:
    """Some questions of one task."""

    task: str
    category: str | None
    """None if the questions may belong to several categories."""
    questions: tuple[Question, ...]


def grouped(suite: Suite, questions: Sequence[Question], batch_size: int) -> list[Group]:
    """Return the questions in groups: of one question at batch size 1, else of `FILLS` batches of questions of one task.

    Args:
        suite: the suite of the questions.
        questions: the questions to run, in order; the groups keep the order as far as possible.
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
