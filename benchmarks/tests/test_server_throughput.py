"""Rows and failures that the throughput script derives from its rounds."""

from __future__ import annotations

from typing import Any

from server_throughput import Round, compared, failures


def row(factor: float, *, is_same: bool = True) -> dict[str, Any]:
    plain = [Round(float(seconds), ((1, 2, 3), (4, 5))) for seconds in (1, 2, 4)]
    found = [Round(r.seconds / factor, r.answers if is_same else ((1, 2, 3), (4, 6))) for r in plain]
    return compared("ngram", 8, found, plain)


def test_a_row_has_the_median_of_the_paired_rounds() -> None:
    found = row(1.5)
    assert found["tokens_per_s"] == [7.5, 3.8, 1.9]
    assert found["tokens_per_s_without"] == [5.0, 2.5, 1.2]
    assert (found["ratio"]["median"], found["num_answers"], found["num_same"]) == (1.5, 6, 6)


def test_slower_and_other_answers_are_failures() -> None:
    assert failures([row(1.0), row(0.98)]) == []
    assert failures([row(0.96)]) == ["ngram, 8 clients: 0.96 times the tokens/s without drafts"]
    assert failures([row(2.0, is_same=False)]) == ["ngram, 8 clients: 3 answers are not those without drafts"]
