"""Selects the questions of a suite to run, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest

from specdec_cli.bench.suites.question import Question


def even_sample(questions: Sequence[Question], count: int | None = None) -> list[Question]:
    """Return questions with alternating categories, so any finished part of a run covers all categories.

    Every category contributes the same number of questions, as far as it has enough. If the count does not divide evenly,
    the first categories of the file contribute one more. The questions of a category are spaced evenly, starting
    with its first one. The selection is not random.

    Args:
        questions: the questions of the suite.
        count: how many to select; None, or more than there are, selects all.
    """
    by_category: dict[str, list[Question]] = {}
    for question in questions:
        by_category.setdefault(question.category, []).append(question)
    sizes = _shares([len(members) for members in by_category.values()], count)
    taken = [
        [members[index * len(members) // size] for index in range(size)]
        for members, size in zip(by_category.values(), sizes, strict=True)
    ]
    return [question for question in chain.from_iterable(zip_longest(*taken)) if question is not None]


def _shares(sizes: Sequence[int], count: int | None) -> list[int]:
    """Return how many items to take from sets of these sizes, round-robin until there are enough."""
    shares = [0] * len(sizes)
    wanted = sum(sizes) if count is None else min(count, sum(sizes))
    while sum(shares) < wanted:
        for index, size in enumerate(sizes):
            if shares[index] < size and sum(shares) < wanted:
                shares[index] += 1
    return shares
