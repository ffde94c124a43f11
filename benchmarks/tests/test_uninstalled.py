"""What a machine that has nothing installed is given."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from common import uninstalled

from specdec import registry


def test_packages_that_are_needed_have_dependencies_to_look_up() -> None:
    assert [
        folder
        for folder in uninstalled.NEEDED
        if not (uninstalled.ROOT / folder / "pyproject.toml").is_file()
    ] == []
    assert uninstalled.missing() == []  # nothing is missing where every package is installed
    assert uninstalled.missing(("pytest", "no_such_module")) == ["no_such_module"]


def test_metadata_has_the_entry_points(tmp_path: Path) -> None:
    for source in uninstalled.sources():
        uninstalled.write_metadata(source, tmp_path)
    found = {
        (point.group, point.name)
        for made in Distribution.discover(path=[str(tmp_path)])
        for point in made.entry_points
    }
    ours = {("specdec.proposers", info.name) for info in registry.installed(registry.Group.PROPOSERS)}
    assert {("specdec.proposers", "self"), ("specdec.backends", "triton")} | ours <= found


def test_what_is_missing_comes_from_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wheels").mkdir()
    info = "brought_along-1.0.dist-info"
    with ZipFile(tmp_path / "wheels/brought_along-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("brought_along.py", "NUMBER = 7\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: brought-along\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(
            f"{info}/RECORD", f"brought_along.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    monkeypatch.setattr(sys, "path", [*sys.path])
    environment = uninstalled.prepare(tmp_path / "out", tmp_path / "wheels")
    assert importlib.util.find_spec("brought_along") is not None
    command = [sys.executable, "-c", "import brought_along, specdec; print(brought_along.NUMBER)"]
    assert (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == "7\n"
    )


def test_a_machine_without_packages_is_told_what_it_lacks(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "benchmarks/visit.py", "--missing", "--out", str(tmp_path)]
    ended = subprocess.run(command, cwd=uninstalled.ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (1, "")
    needed, tools = ended.stdout.split("; for the tests: ")
    assert {"pydantic", "numba", "torch", "transformers"} <= set(needed.removeprefix("missing: ").split())
    assert "pytest" in tools.split()
