"""The kinds of plugin and where their templates are: `templates/` has a `string.Template` in each file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType

from specdec.registry import Group


@dataclass(frozen=True)
class Kind:
    """One kind of plugin."""

    group: Group
    module: str
    """Name of the template of its module."""
    needs_runtime: bool = False
    """Whether the module imports specdec-runtime."""

    @property
    def files(self) -> Mapping[str, str]:
        """`string.Template` templates by path; paths are templates too."""
        role = self.group.removeprefix("specdec.").removesuffix("s")
        return {
            "pyproject.toml": _template("pyproject.toml"),
            "README.md": _template("README.md").replace("$use\n", _template(f"{role}_use.md")),
            "$module.py": _template(f"{self.module}.py"),
            "tests/test_$module.py": _template(f"{role}_test.py"),
        }


def _template(name: str) -> str:
    return (files("specdec_testing.scaffold") / "templates" / f"{name}.txt").read_text(encoding="utf-8")


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "proposer": Kind(Group.PROPOSERS, "proposer"),
        "head": Kind(Group.PROPOSERS, "head"),
        "tree": Kind(Group.PROPOSERS, "tree"),
        "sampler": Kind(Group.SAMPLERS, "sampler"),
        "scorer": Kind(Group.SCORERS, "scorer", needs_runtime=True),
        "backend": Kind(Group.BACKENDS, "backend", needs_runtime=True),
    }
)
"""All kinds, by name."""
