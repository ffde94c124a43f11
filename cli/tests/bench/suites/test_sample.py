"""Which questions are asked, in which order and in which groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_cli.bench.suites import Question, Suite, even_sample, grouped


def questions(**sizes: int) -> list[Question]:
    """So many questions of each category, category by category."""
    categories = [category for category, size in sizes.items() for _ in range(size)]
    return [Question(number, category, (f"q{number}",)) for number, category in enumerate(categories)]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (None, [0, 4, 6, 1, 5, 7, 2, 8, 3, 9]),
        (99, [0, 4, 6, 1, 5, 7, 2, 8, 3, 9]),
        (1, [0]),
        (3, [0, 4, 6]),
        (5, [0, 4, 6, 2, 5]),
        (8, [0, 4, 6, 1, 5, 7, 2, 8]),
    ],
)
def test_categories_take_turns_and_give_questions_that_lie_evenly(
    count: int | None, expected: list[int]
) -> None:
    taken = even_sample(questions(a=4, b=2, c=4), count)
    assert [question.number for question in taken] == expected


def test_a_sample_of_spec_bench_has_every_category() -> None:
    sizes = {**{f"mt{n}": 10 for n in range(8)}, **{f"task{n}": 80 for n in range(5)}}
    asked = questions(**sizes)
    assert len({question.category for question in even_sample(asked, 13)}) == 13
    assert sorted(q.number for q in even_sample(asked)) == list(range(480))
    taken = [q.category for q in even_sample(asked, 200)]
    assert {taken.count(f"mt{n}") for n in range(8)} == {10}
    assert {taken.count(f"task{n}") for n in range(5)} == {24}


def test_at_batch_one_a_group_is_a_question(small_suite: Suite) -> None:
    groups = grouped(small_suite, small_suite.questions, 1)
    assert [(group.task, group.category, len(group.questions)) for group in groups] == [
        ("writing", "essays", 1),
        ("writing", "poems", 1),
        ("sums", "sums", 1),
        ("writing", "essays", 1),
        ("sums", "sums", 1),
    ]


def test_batches_are_filled_with_questions_of_one_task() -> None:
    suite = Suite("s", Path("s"), tuple(questions(a=10, b=3, c=9)), {"a": "t", "b": "t"})
    groups = grouped(suite, suite.questions, 2)
    assert [(group.task, group.category, [q.number for q in group.questions]) for group in groups] == [
        ("t", None, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("c", None, [13, 14, 15, 16, 17, 18, 19, 20]),
        ("t", None, [8, 9, 10, 11, 12]),
        ("c", None, [21]),
    ]
