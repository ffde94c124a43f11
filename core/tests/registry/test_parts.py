"""Parts of specdec in packages of their own: found by name, checked, and what a missing one says."""

from __future__ import annotations

from typing import Any

import pytest
from packages import packages

from specdec import PluginError, registry
from specdec.interfaces import Grammars, Part
from specdec.registry import Group, catalogue

PART = """
from specdec import hookimpl
from specdec.interfaces import {base}

class Mine({base}):
    name = "{name}"
    def compile(self, params, info, tokenizer):
        raise NotImplementedError

@hookimpl
def specdec_register_parts():
    return Mine
"""


def install(site: Any, distribution: str, name: str, base: str = "Grammars") -> None:
    module = distribution.replace("-", "_") + "_part"
    site.install(distribution, {"parts": {name: module}}, {module: PART.format(base=base, name=name)})


@pytest.mark.parametrize("name", catalogue.official_packages(Group.PARTS))
def test_a_missing_part_is_answered_with_the_pip_line(site: Any, name: str) -> None:
    package = catalogue.official_packages(Group.PARTS)[name]
    site.install(package, {"parts": {}}, {}, version="0")  # found before the real one
    with pytest.raises(
        PluginError, match=f"^part '{name}' is not installed: pip install {package}. Installed parts: "
    ):
        registry.part(name, Part)


def test_another_package_can_provide_a_part(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "other-grammars", "structured_outputs")
    with pytest.raises(PluginError, match=r"is claimed by other-grammars 1\.0 and specdec-runtime"):
        registry.part("structured_outputs", Grammars)
    monkeypatch.setenv("SPECDEC_PLUGINS", "other-grammars")
    assert registry.part("structured_outputs", Grammars).__module__ == "other_grammars_part"


def test_official_parts_may_always_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_PLUGINS", "")
    registry.reset()
    assert (
        registry.part("structured_outputs", Grammars).__module__
        == "specdec_runtime.structured_outputs.compiler"
    )


def test_a_part_must_derive_from_what_core_calls(site: Any) -> None:
    site.install("specdec-runtime", {"parts": {}}, {}, version="0")
    install(site, "plain", "structured_outputs", base="Part")
    with pytest.raises(PluginError, match=r"must be a subclass of specdec\.interfaces\.grammar\.Grammars"):
        registry.part("structured_outputs", Grammars)


def test_the_names_that_core_knows_are_those_of_the_packages() -> None:
    there = {package.name: package for package in packages()}
    for name, package in catalogue.official_packages(Group.PARTS).items():
        assert name in there[package].entry_points(Group.PARTS)
    for name, (package, _) in catalogue.known_commands().items():
        assert name in there[package].entry_points("specdec.commands")
    assert catalogue.always_allowed() <= there.keys()
