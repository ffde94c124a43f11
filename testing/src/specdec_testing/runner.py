"""Runs a suite in this process and reports the verdict of each promise."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from specdec_testing.support.conformance import Conformance
from specdec_testing.support.subjects import path_of
from specdec_testing.support.verdicts import NOT_APPLICABLE, advice, described

_FILE = """\
from specdec_testing.support import subjects

TestPromises = subjects.{name}
"""
_TO_FIX = "To fix:"
_SETTINGS: Mapping[str, str | None] = {"PYTEST_ADDOPTS": None, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Makes a check independent of installed pytest plugins."""


class PromiseVerdict(StrEnum):
    """Verdict on a promise."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class PromiseReport:
    """One promise of a suite, and whether it is kept."""

    name: str
    """The test's name."""
    promise: str
    """The promise, in one sentence."""
    verdict: PromiseVerdict
    reason: str = ""
    """Why it is not kept, or not applicable; one line."""
    fix: str = ""
    """What to change if it is broken."""
    facts: dict[str, object] = field(default_factory=dict)
    """Measured values."""
    output: str = ""
    """What the plugin printed during the test, on either stream."""


def run_suite(
    suite: type[Conformance],
    only: Sequence[str] = (),
    on_report: Callable[[PromiseReport], None] | None = None,
) -> list[PromiseReport]:
    """Run the tests of a suite with pytest and return one report per test, in order.

    Args:
        suite: a subclass of one of the kit's suites.
        only: names of the tests to run; all if there are none.
        on_report: called as each test ends.
    """
    collected = _Collected(on_report)
    with tempfile.TemporaryDirectory() as folder, _environment(_SETTINGS):
        name = path_of(suite).rpartition(".")[2]
        # The name is unique: pytest would reuse a module of the same name from another folder of an earlier run.
        file, settings = Path(folder) / f"test_{name}.py", Path(folder) / "pytest.ini"
        file.write_text(_FILE.format(name=name), encoding="utf-8")
        settings.write_text("[pytest]\naddopts =\n", encoding="utf-8")
        places = [f"{file}::TestPromises::{name}" for name in only] or [str(file)]
        options = ["-c", str(settings), "--rootdir", folder, "--noconftest", "--import-mode=importlib"]
        # unraisableexception collects garbage twice, which takes longer than most tests.
        quiet = [f"-pno:{plugin}" for plugin in ("terminal", "cacheprovider", "unraisableexception")]
        code = pytest.main([*places, *options, *quiet], plugins=[collected])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest could not run the suite: {collected.problem or code!r}")
    return collected.reports


class _Collected:
    """A pytest plugin that records the results of the tests."""

    def __init__(self, on_report: Callable[[PromiseReport], None] | None) -> None:
        self.reports: list[PromiseReport] = []
        self.problem = ""
        self._on_report = on_report
        self._docs: dict[str, str] = {}
        self._raised: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Record the docstrings."""
        self._docs = {item.nodeid: getattr(item, "function").__doc__ or "" for item in items}  # noqa: B009  not on Item

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record collection errors."""
        if report.failed:
            self.problem = _reason(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Record exceptions other than `pytest.fail` and `pytest.skip`."""
        if call.excinfo is not None and not isinstance(
            call.excinfo.value, pytest.fail.Exception | pytest.skip.Exception
        ):
            self._raised[item.nodeid] = f"the check raised {described(call.excinfo.value)}"
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the outcome of a test, or of its setup or teardown if that fails."""
        if report.when != "call" and report.passed:
            return
        promise, fix = _split(self._docs[report.nodeid])
        verdict = _verdict(report)
        reason = "" if verdict is PromiseVerdict.KEPT else self._raised.get(report.nodeid) or _reason(report)
        made = PromiseReport(
            name=report.nodeid.rpartition("::")[2],
            promise=promise,
            verdict=verdict,
            reason=reason,
            fix=advice(reason, fix) if verdict is PromiseVerdict.BROKEN else "",
            facts=dict(report.user_properties),
            output=report.capstdout + report.capstderr,
        )
        self.reports.append(made)
        if self._on_report is not None:
            self._on_report(made)


def _verdict(report: pytest.TestReport) -> PromiseVerdict:
    if report.passed:
        return PromiseVerdict.KEPT
    if report.skipped and NOT_APPLICABLE in _text(report):
        return PromiseVerdict.NOT_APPLICABLE
    return PromiseVerdict.BROKEN


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return " ".join(_text(report).split()).removeprefix(NOT_APPLICABLE)


def _text(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the reason of a test's outcome: its own message, or the exception that ended it."""
    longrepr: Any = report.longrepr
    if isinstance(longrepr, tuple):
        return str(longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(longrepr, "reprcrash", None)
    return str(longrepr if crash is None else crash.message).removeprefix("Failed: ")


def _split(doc: str) -> tuple[str, str]:
    """Return the promise and the remedy of a docstring, each as one line."""
    head, _, fix = doc.partition(_TO_FIX)
    promise = " ".join(head.split("\n\n")[0].split())
    return promise, " ".join(fix.split())


@contextmanager
def _environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables temporarily; None removes one."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
