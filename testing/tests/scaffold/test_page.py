"""The page for authors and the example are one: every line of code on it is the example's, and all of the example is on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packages import ROOT

from specdec import __version__
from specdec.interfaces import Capability
from specdec_testing import ProposerConformance
from specdec_testing.runner import PromiseVerdict, run_suite
from specdec_testing.scaffold import KINDS, plugin_names, write_package
from specdec_testing.scaffold.write import next_version

EXAMPLE = ROOT / "examples/specdec-echo"
PAGE = (ROOT / "docs/write-a-proposer.md").read_text(encoding="utf-8")
FILE = re.compile(r"<!-- file: (\S+?)(?:, appended)? -->\n```\w+\n(.*?)```", re.S)


def on_the_page() -> dict[str, list[str]]:
    """The lines of each file on the page, blank ones left out."""
    files: dict[str, list[str]] = {}
    for name, text in FILE.findall(PAGE):
        files.setdefault(name, []).extend(line for line in text.splitlines() if line.strip())
    return files


def test_page_and_example_are_the_same() -> None:
    files = on_the_page()
    del files["drawn.py"]  # of a section on what echo has no use for
    example = {
        file.name: [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        for file in EXAMPLE.rglob("*")
        if file.suffix in {".py", ".toml"} and "egg-info" not in str(file)
    }
    assert files == example


@pytest.mark.parametrize(("name", "kind"), [("branches", "tree"), ("state-match", "head")])
def test_scaffolded_trees_and_heads_keep_their_promises(name: str, kind: str, tmp_path: Path) -> None:
    names = plugin_names(name, KINDS[kind].group)
    folder = write_package(names, KINDS[kind], tmp_path)[0].parent
    file = folder / f"{names.module}.py"
    settings = {"method": f"{file}:{names.cls}", "config": {"num_speculative_tokens": 4}, "model": "tiny"}
    reports = run_suite(type(f"Test{names.cls}", (ProposerConformance,), settings))
    broken = {report.name: report.reason for report in reports if report.verdict is PromiseVerdict.BROKEN}
    assert broken == {}
    assert sum(report.verdict is PromiseVerdict.KEPT for report in reports) > 24


def test_the_example_keeps_its_promises() -> None:
    method, config = f"{EXAMPLE}/specdec_echo.py:Echo", {"num_speculative_tokens": 4, "max_distance": 64}
    suite = type("TestEcho", (ProposerConformance,), {"method": method, "config": config, "model": "tiny"})
    reports = run_suite(suite)
    broken = {report.name: report.reason for report in reports if report.verdict is PromiseVerdict.BROKEN}
    assert broken == {}
    assert sum(report.verdict is PromiseVerdict.KEPT for report in reports) > 24


def test_the_page_names_every_capability() -> None:
    assert [each.name for each in Capability if f"`{each.name}`" not in PAGE] == []


def test_the_version_bound_is_the_one_that_is_scaffolded() -> None:
    bound = f'"specdec-core>={__version__},<{next_version(__version__)}"'
    assert bound in PAGE
    assert bound in (ROOT / "docs/compatibility.md").read_text(encoding="utf-8")
    template = KINDS["proposer"].files["pyproject.toml"]
    assert '"specdec-core>=$version,<$next_version"' in template
