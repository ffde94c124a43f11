"""The samplers' suite: our samplers keep every promise, each mutant breaks its own."""

from __future__ import annotations

import pytest
from kit_subjects.sampler_mutants import MUTANTS

from specdec_testing import SamplerConformance
from specdec_testing.runner import PromiseVerdict, run_suite

RIGHT = {
    "strict": {},
    "probabilistic": {},
    "block": {},
    "typical": {},
    "synthetic": {"synthetic_acceptance_rates": (0.8, 0.5)},
}
"""Samplers and their configuration."""
LOSSY = {"typical", "synthetic"}
QUICK = ["test_drawn_chains_leave_the_law_alone", "test_siblings_without_replacement_leave_the_law_alone"]
QUICK += ["test_temperature_zero_is_the_argmax_path", "test_requests_do_not_depend_on_each_other"]
"""Some promises that the default run has a lossless sampler keep."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full if name not in LOSSY else ()) for name in RIGHT],
)
def test_a_right_sampler_keeps_every_promise(name: str) -> None:
    suite = type("TestRight", (SamplerConformance,), {"sampler": name, "config": RIGHT[name]})
    reports = run_suite(suite)
    broken = {report.name: report.reason for report in reports if report.verdict is PromiseVerdict.BROKEN}
    assert broken == {}
    left_out = {report.name for report in reports if report.verdict is PromiseVerdict.NOT_APPLICABLE}
    assert any("_law_" in name or "share" in name for name in left_out) == (name in LOSSY)
    assert len(reports) - len(left_out) > (4 if name in LOSSY else 17)


@pytest.mark.parametrize("name", ["strict", "probabilistic"])
@pytest.mark.sampled(1, slow=1)
def test_a_lossless_sampler_keeps_some_promises(name: str) -> None:
    reports = run_suite(type("TestRight", (SamplerConformance,), {"sampler": name}), only=QUICK)
    assert [report.verdict for report in reports] == [PromiseVerdict.KEPT] * len(QUICK)


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.sampled(8, slow=8)
def test_a_mutant_breaks_its_promise(name: str) -> None:
    sampler, test = MUTANTS[name]
    [report] = run_suite(type("TestMutant", (SamplerConformance,), {"sampler": sampler}), only=[test])
    assert report.verdict is PromiseVerdict.BROKEN
    assert "raised" not in report.reason or test == "test_a_step_in_which_nobody_samples"
    assert report.fix


def test_every_promise_has_a_mutant() -> None:
    tests = {name for name in dir(SamplerConformance) if name.startswith("test_")}
    assert tests - {"test_nothing_of_the_kit_is_replaced"} == {test for _, test in MUTANTS.values()}
