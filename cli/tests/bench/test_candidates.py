"""Installed methods: which there are, how they run on the zoo, and why one does not."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from specdec.config import target_facts
from specdec.registry.catalogue import known_methods
from specdec_cli.bench import Contender, Workload
from specdec_cli.bench.candidates import LeftOut, contender_for, installed_methods, missing_distributions
from specdec_runtime.loading.target import LoadedTarget

MODULE = """
from specdec import Draft, Proposer, ProposerConfig, hookimpl

class Config(ProposerConfig):
    model: str | None = None

class Base(Proposer):
    Config = Config

    def propose(self, batch):
        assert {needs_model} is False or self.config.model
        return Draft.empty(batch.batch_size)

@hookimpl
def specdec_register_proposers():
    return [type(name, (Base,), {{"name": name, "aliases": aliases}}) for name, aliases in {classes}]
"""


def install(site: Any, names: list[str], classes: list[Any], needs_model: bool = False) -> None:
    source = MODULE.format(classes=classes, needs_model=needs_model)
    site.install(
        "offered", {"proposers": dict.fromkeys(names, "offered_methods")}, {"offered_methods": source}
    )


def found(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the names of the methods that come from this test's own package."""
    monkeypatch.setenv("SPECDEC_PLUGINS", "offered")
    from specdec import registry

    ours = {info.name for info in registry.installed() if info.distribution == "offered"}
    return ours & set(installed_methods())


def test_a_second_name_is_left_out_unless_it_is_a_method_of_its_own(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = next(method.name for method in known_methods().values() if method.distribution is None)
    install(site, ["mine", "my", published], [("mine", ("my", published))])
    assert found(monkeypatch) == {"mine", published}


def test_a_method_that_does_not_load_is_kept_to_be_told(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, ["mine", "gone"], [("mine", ())])
    assert found(monkeypatch) == {"mine", "gone"}


@pytest.mark.slow
def test_a_published_method_gets_its_draft_from_the_zoo(
    site: Any, target: LoadedTarget, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = next(m for m in known_methods().values() if m.zoo is not None and m.draft == "target")
    install(site, [method.name], [(method.name, ())], needs_model=True)
    monkeypatch.setenv("SPECDEC_PLUGINS", "offered")
    monkeypatch.setitem(
        sys.modules, "specdec_zoo", SimpleNamespace(draft=lambda name, target: f"/drafts/{name}")
    )
    assert target.path is not None
    found = contender_for(method.name, target, target_facts(target.path), workload)
    assert isinstance(found, Contender), found
    options = {"num_speculative_tokens": 5} | dict(method.demo_options.get("zoo", {}))
    assert found.config == {"method": method.name, "model": "zoo", **options}


def test_reasons_are_one_line(site: Any, target: LoadedTarget, workload: Workload, monkeypatch: Any) -> None:
    install(site, ["mine"], [("mine", ())], needs_model=True)
    monkeypatch.setenv("SPECDEC_PLUGINS", "offered")
    assert target.path is not None
    facts = target_facts(target.path)
    failing = contender_for("mine", target, facts, workload)
    assert isinstance(failing, LeftOut)
    assert failing.method == "mine"
    assert failing.reason.startswith("AssertionError")
    absent = contender_for("nobody", target, facts, workload)
    assert isinstance(absent, LeftOut)
    assert "\n" not in absent.reason
    assert absent.reason.startswith("there is no method 'nobody'")


def test_packages_that_are_missing_are_those_of_published_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec.registry.installed", lambda group=None: [])
    offered = {method.distribution for method in known_methods().values() if method.distribution}
    assert missing_distributions() == sorted(offered)
