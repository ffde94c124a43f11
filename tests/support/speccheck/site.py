"""A folder on `sys.path` in which tests install packages; every test starts without notices said before."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from specdec import registry
from specdec.config import notices


class Site:
    """A folder on `sys.path` in which tests install packages: real metadata, real modules."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def install(
        self,
        distribution: str,
        entry_points: Mapping[str, Mapping[str, str]],
        modules: Mapping[str, str],
        version: str = "1.0",
    ) -> None:
        """Write a distribution as pip would.

        Args:
            distribution: its name.
            entry_points: for each group (without `specdec.`) names and their modules.
            modules: names and their source.
            version: its version.
        """
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\nSummary: Made by {distribution}\n"
        )
        lines = []
        for group, names in entry_points.items():
            lines += [f"[specdec.{group}]", *(f"{name} = {module}" for name, module in names.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        for name, source in modules.items():
            (self.path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        registry.reset()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A folder to install fake packages in; what they import is forgotten afterwards."""
    made = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(made.path))
    before = set(sys.modules)
    registry.reset()
    yield made
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    monkeypatch.undo()
    registry.reset()


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> None:
    notices.reset()
