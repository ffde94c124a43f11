"""The suites as classes: nothing of theirs can be replaced, and every test says what it promises and what to fix."""

from __future__ import annotations

import pytest
from kit_subjects.toys import Chain, kit_config

from specdec_testing import ProposerConformance, SamplerConformance, ScorerConformance
from specdec_testing.runner import PromiseVerdict, run_suite

SUITES = (ProposerConformance, SamplerConformance, ScorerConformance)
SETTINGS = {"method": Chain, "config": kit_config(), "model": "tiny"}


def test_a_test_of_the_kit_cannot_be_replaced() -> None:
    for name in ("test_node_caps_are_kept", "_feed", "settings", "__init_subclass__"):
        with pytest.raises(TypeError, match=f"TestMine replaces {name} of the kit"):
            type("TestMine", (ProposerConformance,), SETTINGS | {name: None})


def test_nor_by_a_class_beside_it() -> None:
    beside = type("Beside", (), {"test_it_drafts": lambda self: None})
    with pytest.raises(TypeError, match="TestMine replaces test_it_drafts"):
        type("TestMine", (beside, ProposerConformance), SETTINGS)
    between = type("TestBetween", (ProposerConformance,), SETTINGS)
    with pytest.raises(TypeError, match="TestMine replaces test_it_drafts"):
        type("TestMine", (between,), {"test_it_drafts": None})


def test_nor_afterwards() -> None:
    suite = type("TestMine", (ProposerConformance,), SETTINGS)
    suite.test_node_caps_are_kept = lambda self: None
    reports = run_suite(suite, only=["test_nothing_of_the_kit_is_replaced", "test_node_caps_are_kept"])
    assert [report.verdict for report in reports] == [PromiseVerdict.BROKEN, PromiseVerdict.KEPT]
    assert reports[0].reason.startswith("TestMine replaces test_node_caps_are_kept of the kit")


def test_settings_and_tests_of_ones_own_are_welcome() -> None:
    own = {"test_of_my_own": lambda self: None, "helper": 1, "setup_method": lambda self: None}
    suite = type("TestMine", (ProposerConformance,), SETTINGS | own | {"prompts": ([1, 2, 3] * 30,)})
    [report] = run_suite(suite, only=["test_of_my_own"])
    assert report.verdict is PromiseVerdict.KEPT


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.__name__)
def test_every_test_says_what_is_promised_and_what_to_mend(suite: type) -> None:
    tests = [getattr(suite, name) for name in dir(suite) if name.startswith("test_")]
    assert len(tests) > 10
    for test in tests:
        promise, fix = (test.__doc__ or "").split("To fix: ")
        assert promise.strip().count("\n") == 0, test.__name__
        assert promise.strip().endswith("."), test.__name__
        assert len(fix.strip()) > 7, test.__name__


def test_an_author_sees_the_reason_and_no_traceback(tmp_path, monkeypatch) -> None:
    file = tmp_path / "test_author.py"
    file.write_text(
        "from kit_subjects.mutants import OneOverTheCap\n"
        "from specdec_testing import ProposerConformance\n"
        "class TestMine(ProposerConformance):\n"
        "    method, model = OneOverTheCap, 'tiny'\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts =\n")
    seen: list[pytest.TestReport] = []

    class Keep:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            seen.append(report)

    options = ["-c", str(tmp_path / "pytest.ini"), "-p", "no:terminal", "-p", "no:cacheprovider"]
    code = pytest.main([f"{file}::TestMine::test_node_caps_are_kept", *options], plugins=[Keep()])
    assert code is pytest.ExitCode.TESTS_FAILED
    [failed] = [report for report in seen if report.failed]
    assert str(failed.longrepr).startswith("max_nodes is ")
    assert "\n" not in str(failed.longrepr)
