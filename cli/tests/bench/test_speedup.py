"""Speed-ups, and bounds by rounds and by questions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specdec.outputs import CompletionOutput, RequestMetrics, RequestOutput
from specdec_cli.bench import Turn
from specdec_cli.bench.speedup import speedup_by_questions, speedup_by_rounds

METRICS = RequestMetrics(0, 0, 0, [], None, 0.0)


def turn(wall_s: float, num_tokens: int = 1) -> Turn:
    output = CompletionOutput(0, "", [0] * num_tokens)
    return Turn(wall_s, (RequestOutput("0", None, [1], [output], True, METRICS),), (), 0.0)


def turns(*walls: float) -> list[Turn]:
    return [turn(wall) for wall in walls]


def test_by_rounds_it_is_the_median_of_ratios() -> None:
    baseline = [turn(4.0), turn(6.0), turn(8.0)]
    assert speedup_by_rounds(turns(2.0, 2.0, 2.0), baseline) == (3.0, 2.0, 4.0)


def test_texts_of_other_lengths_are_compared_per_token() -> None:
    assert speedup_by_rounds([turn(2.0, num_tokens=4)], [turn(4.0, num_tokens=2)])[0] == 4.0


def test_by_questions_it_is_the_ratio_of_totals() -> None:
    value, low, high = speedup_by_questions([turns(1.0, 3.0)], [turns(4.0, 4.0)])
    assert value == 2.0
    assert (low, high) == (
        pytest.approx(4 / 3),
        4.0,
    )  # one of the two questions alone, a quarter of draws each


def test_bounds_cover_and_narrow_as_questions_are_added() -> None:
    random = np.random.default_rng(1)

    def measured(num_questions: int) -> tuple[float, float, float]:
        ratios = random.lognormal(0.5, 0.3, num_questions)
        return speedup_by_questions([turns(*(1 / ratios))], [turns(*np.ones(num_questions))])

    truth = 1 / float(np.exp(-0.5 + 0.3**2 / 2))  # of totals: one over the mean of the inverse ratios
    found = [measured(60) for _ in range(200)]
    covered = sum(low <= truth <= high for _, low, high in found) / len(found)
    assert 0.88 < covered <= 1.0
    wide = np.mean([high - low for _, low, high in found])
    narrow = np.mean([high - low for _, low, high in (measured(240) for _ in range(20))])
    assert narrow < 0.7 * wide


def test_what_hits_baseline_and_contender_alike_does_not_widen_bounds() -> None:
    walls = [1.0, 9.0, 2.0, 30.0]
    value, low, high = speedup_by_questions([turns(*walls)], [turns(*(2 * wall for wall in walls))])
    assert (value, low, high) == (2.0, pytest.approx(2.0), pytest.approx(2.0))


def test_rounds_give_the_median_and_one_question_no_bounds() -> None:
    own: Any = [turns(1.0), turns(1.0), turns(1.0)]
    assert speedup_by_questions(own, [turns(5.0), turns(2.0), turns(3.0)]) == (3.0, 3.0, 3.0)


def test_the_same_measurements_give_the_same_bounds() -> None:
    own, base = [turns(1.0, 2.0, 3.0)], [turns(3.0, 3.0, 3.0)]
    assert speedup_by_questions(own, base) == speedup_by_questions(own, base)
