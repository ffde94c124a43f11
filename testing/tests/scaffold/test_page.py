"""The pages for authors: all code of the proposer is the example's, and what they make keeps its promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packages import ROOT

from specdec import __version__
from specdec.interfaces import Capability
from specdec_testing import ProposerConformance, SamplerConformance
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
    for name in [name for name in files if name.startswith(("drawn.", "closing.", "my_", "in_"))]:
        del files[name]  # of sections on what echo has no use for
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


@pytest.mark.slow
def test_the_sampler_of_the_page_keeps_its_promises(tmp_path: Path) -> None:
    page = (ROOT / "docs/write-a-sampler.md").read_text(encoding="utf-8")
    code = "".join(text for name, text in FILE.findall(page) if name == "ratio.py")
    (tmp_path / "ratio.py").write_text(code)
    reports = run_suite(type("TestRatio", (SamplerConformance,), {"sampler": f"{tmp_path}/ratio.py:Ratio"}))
    verdicts = {report.name: report.verdict for report in reports}
    assert PromiseVerdict.BROKEN not in verdicts.values(), reports
    assert verdicts["test_drawn_chains_leave_the_law_alone"] is PromiseVerdict.KEPT
    assert sum(verdict is PromiseVerdict.KEPT for verdict in verdicts.values()) > 15


def test_the_page_names_every_capability() -> None:
    assert [each.name for each in Capability if f"`{each.name}`" not in PAGE] == []


def test_the_version_bound_is_the_one_that_is_scaffolded() -> None:
    bound = f'"specdec-core>={__version__},<{next_version(__version__)}"'
    assert bound in PAGE
    assert bound in (ROOT / "docs/compatibility.md").read_text(encoding="utf-8")
    template = KINDS["proposer"].files["pyproject.toml"]
    assert '"specdec-core>=$version,<$next_version"' in template
