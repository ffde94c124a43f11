"""The templates for each kind of plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from specdec.registry import Group
from specdec_testing.scaffold import package_files as package
from specdec_testing.scaffold.backend_module import BACKEND
from specdec_testing.scaffold.proposer_modules import HEAD, PROPOSER, TREE
from specdec_testing.scaffold.verifying_modules import SAMPLER, SCORER


@dataclass(frozen=True)
class Kind:
    """One kind of plugin."""

    group: Group
    module: str
    """Template of the module."""
    test: str
    """Template of its test."""
    use: str
    """Template of the usage section of its README."""
    needs_runtime: bool = False
    """Whether the module imports specdec-runtime."""

    @property
    def files(self) -> Mapping[str, str]:
        """`string.Template` templates by path; paths are templates too."""
        return {
            "pyproject.toml": package.PYPROJECT,
            "README.md": package.README.replace("$use", self.use),
            "$module.py": self.module,
            "tests/test_$module.py": self.test,
        }


def _proposer(module: str) -> Kind:
    return Kind(Group.PROPOSERS, module, package.PROPOSER_TEST, package.USE_OF_PROPOSERS)


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "proposer": _proposer(PROPOSER),
        "head": _proposer(HEAD),
        "tree": _proposer(TREE),
        "sampler": Kind(Group.SAMPLERS, SAMPLER, package.SAMPLER_TEST, package.USE_OF_SAMPLERS),
        "scorer": Kind(
            Group.SCORERS, SCORER, package.SCORER_TEST, package.USE_OF_SCORERS, needs_runtime=True
        ),
        "backend": Kind(
            Group.BACKENDS, BACKEND, package.BACKEND_TEST, package.USE_OF_BACKENDS, needs_runtime=True
        ),
    }
)
"""All kinds, by name."""
