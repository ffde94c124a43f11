"""Which questions of a suite are asked, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest

from specdec.bench.suites.question import Question


def even_sample(questions: Sequence[Question], count: int | None = None) -> list[Question]:
    """Return questions with the categories taking turns, so that whatever part of a run is done covers all of them.

    Every category gives equally many, as far as it has them; the categories that come first in the file give one more where
    the count does not divide. Of a category's questions those are taken that lie evenly over it, from its first one on. No
    chance is involved.

    Args:
        questions: of the suite.
        count: how many to take; None, or more than there are, for all.
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
    """Return how many to take of sets of these sizes, one after another until there are enough."""
    shares = [0] * len(sizes)
    wanted = sum(sizes) if count is None else min(count, sum(sizes))
    while sum(shares) < wanted:
        for index, size in enumerate(sizes):
            if shares[index] < size and sum(shares) < wanted:
                shares[index] += 1
    return shares
