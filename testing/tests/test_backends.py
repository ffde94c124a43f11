"""The backends' suite: a backend that is right keeps every promise, each mutant breaks its own."""

from __future__ import annotations

import pytest
from kit_subjects.backend_mutants import MUTANTS
from kit_subjects.backends import Right

from specdec.interfaces import Backend
from specdec_testing import BackendConformance
from specdec_testing.runner import PromiseVerdict, run_suite


def suite_of(backend: str | type[Backend], model: str = "tiny") -> type[BackendConformance]:
    return type("TestOne", (BackendConformance,), {"backend": backend, "model": model})


@pytest.mark.parametrize("model", ["tiny", pytest.param("zoo", marks=pytest.mark.full)])
def test_a_backend_that_is_right_keeps_every_promise(model: str) -> None:
    reports = run_suite(suite_of(Right, model))
    found = {report.name: report.reason for report in reports if report.verdict is not PromiseVerdict.KEPT}
    assert found == {"test_invariant_rows_keep_their_bits": "is_invariant is False"}
    assert len(reports) > 20


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.sampled(12, slow=12)
def test_a_mutant_breaks_its_promise(name: str) -> None:
    backend, test = MUTANTS[name]
    [report] = run_suite(suite_of(backend), only=[test])
    assert report.verdict is PromiseVerdict.BROKEN
    assert "the check raised" not in report.reason
    assert report.fix


def test_what_is_declined_is_not_applicable() -> None:
    class Declines(Backend):
        name = "declines"
        api_version = 1

    reports = run_suite(suite_of(Declines))
    judged = {report.name for report in reports if report.verdict is PromiseVerdict.KEPT}
    assert judged == {
        "test_every_question_is_answered",
        "test_a_reason_is_a_clause",
        "test_nothing_of_the_kit_is_replaced",
        "test_the_text_is_that_of_core_alone",
    }
    reasons = {report.reason for report in reports if report.verdict is PromiseVerdict.NOT_APPLICABLE}
    assert "declined: it has no form of models" in reasons
    assert PromiseVerdict.BROKEN not in {report.verdict for report in reports}


def test_every_promise_has_a_mutant() -> None:
    tests = {name for name in dir(BackendConformance) if name.startswith("test_")}
    assert tests - {"test_nothing_of_the_kit_is_replaced"} == {test for _, test in MUTANTS.values()}
