"""The scorers' suite: core's scorer keeps every promise, each mutant breaks its own."""

from __future__ import annotations

import pytest
from kit_subjects.scorer_mutants import MUTANTS

from specdec_testing import ScorerConformance
from specdec_testing.runner import PromiseVerdict, run_suite


@pytest.mark.parametrize("model", ["tiny", pytest.param("zoo", marks=pytest.mark.full)])
def test_cores_scorer_keeps_every_promise(model: str) -> None:
    reports = run_suite(type("TestRight", (ScorerConformance,), {"scorer": "transformers", "model": model}))
    assert {
        report.name: report.reason for report in reports if report.verdict is not PromiseVerdict.KEPT
    } == {}
    assert len(reports) > 10


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_breaks_its_promise(name: str) -> None:
    scorer, test = MUTANTS[name]
    suite = type("TestMutant", (ScorerConformance,), {"scorer": scorer, "model": "tiny"})
    [report] = run_suite(suite, only=[test])
    assert report.verdict is PromiseVerdict.BROKEN
    assert "raised" not in report.reason
    assert report.fix


def test_every_promise_has_a_mutant() -> None:
    tests = {name for name in dir(ScorerConformance) if name.startswith("test_")}
    assert tests - {"test_nothing_of_the_kit_is_replaced"} == {test for _, test in MUTANTS.values()}
