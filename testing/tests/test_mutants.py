"""Every way of breaking a promise is found by the test of that promise."""

from __future__ import annotations

import pytest
from kit_subjects import law_mutants, mutants
from kit_subjects.toys import kit_config

from specdec_testing import ProposerConformance
from specdec_testing.runner import PromiseVerdict, run_suite

MUTANTS = mutants.MUTANTS | law_mutants.MUTANTS


def suite_of(name: str) -> type[ProposerConformance]:
    settings = {"method": MUTANTS[name][0], "config": kit_config(), "model": "tiny"}
    return type("TestMutant", (ProposerConformance,), settings)


SLOW = ("DropsWhatItDrew", "LiesByTemperature", "SiblingsOfTheWholeLaw")
"""Take 20,000 drafts each, and are like others that do."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name in SLOW else ()) for name in MUTANTS]
)
@pytest.mark.sampled(17, slow=17)
def test_a_mutant_breaks_its_promise(name: str) -> None:
    test = MUTANTS[name][1]
    [report] = run_suite(suite_of(name), only=[test])
    assert report.verdict is PromiseVerdict.BROKEN
    assert report.reason
    assert "\n" not in report.reason
    assert report.fix


def test_every_promise_has_a_mutant() -> None:
    tests = {name for name in dir(ProposerConformance) if name.startswith("test_")}
    judged = tests - {"test_cost", "test_nothing_of_the_kit_is_replaced"}
    assert judged == {test for _, test in MUTANTS.values()}
    assert len(MUTANTS) > len(judged)


@pytest.mark.full
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_fails_the_whole_suite(name: str) -> None:
    reports = run_suite(suite_of(name))
    broken = {report.name for report in reports if report.verdict is PromiseVerdict.BROKEN}
    assert MUTANTS[name][1] in broken
