"""The packages of this repository, read from their pyproject files."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Package:
    """One distribution: a folder with a pyproject that has a `[project]` table."""

    folder: Path

    @cached_property
    def pyproject(self) -> dict[str, Any]:
        """Its pyproject, parsed."""
        return tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))

    @property
    def name(self) -> str:
        """The distribution's name."""
        return str(self.pyproject["project"]["name"])

    @property
    def version(self) -> str:
        """The distribution's version."""
        return str(self.pyproject["project"]["version"])

    @property
    def source(self) -> Path:
        """The folder of its import package."""
        (found,) = (file.parent for file in self.folder.glob("src/*/__init__.py"))
        return found

    @property
    def requirements(self) -> list[str]:
        """All requirements, including those of extras."""
        project = self.pyproject["project"]
        extras = project.get("optional-dependencies", {})
        return [*project.get("dependencies", []), *(line for lines in extras.values() for line in lines)]

    def siblings(self) -> list[Package]:
        """Return this package and the official packages that it needs, transitively; extras are left out."""
        by_name = {package.name: package for package in packages()}
        found = [self]
        for package in found:
            needed = [
                re.split(r"[^a-zA-Z0-9-]", line)[0]
                for line in package.pyproject["project"].get("dependencies", [])
            ]
            found += [by_name[name] for name in needed if name in by_name and by_name[name] not in found]
        return found

    def entry_points(self, group: str) -> dict[str, str]:
        """Return the entry points of a group: names and modules."""
        return dict(self.pyproject["project"].get("entry-points", {}).get(group, {}))


def packages() -> list[Package]:
    """Return every official package, core first."""
    folders = [
        "core",
        "cli",
        "kernels",
        "runtime",
        "server",
        "testing",
        "train",
        "zoo",
        *sorted(f"{group}/{p.name}" for group in ("adapters", "plugins") for p in (ROOT / group).iterdir()),
    ]
    return [Package(ROOT / folder) for folder in folders if (ROOT / folder / "pyproject.toml").exists()]
