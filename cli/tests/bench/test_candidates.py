"""Installed methods: which there are, how they run on the zoo, and why one does not."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from specdec import ConfigError
from specdec.config import target_facts
from specdec.registry.catalogue import known_methods
from specdec_cli.bench import BASELINE, Comparison, Contender, Workload
from specdec_cli.bench.candidates import configured, installed_methods, left_out, missing_distributions
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
    site: Any, target: LoadedTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = next(m for m in known_methods().values() if m.zoo is not None and m.draft == "target")
    install(site, [method.name], [(method.name, ())], needs_model=True)
    monkeypatch.setenv("SPECDEC_PLUGINS", "offered")
    monkeypatch.setitem(
        sys.modules, "specdec_zoo", SimpleNamespace(draft=lambda name, target: f"/drafts/{name}")
    )
    assert target.path is not None
    found = configured(method.name, target_facts(target.path))
    options = {"num_speculative_tokens": 5} | dict(method.demo_options.get("zoo", {}))
    assert found.config == {"method": method.name, "model": "zoo", **options}


def test_a_contender_that_fails_has_no_row(
    site: Any, target: LoadedTarget, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, ["mine", "good"], [("mine", ())], needs_model=True)
    monkeypatch.setenv("SPECDEC_PLUGINS", "offered,ngram")
    assert target.path is not None
    mine, ngram = (configured(name, target_facts(target.path)) for name in ("mine", "ngram"))
    strict = replace(mine, config={**mine.config, "on_proposer_error": "raise"})
    failures = list[tuple[Contender, Exception]]()
    comparison = Comparison(
        target, workload, [BASELINE, strict, ngram], on_failure=lambda *failed: failures.append(failed)
    )
    comparison.run_round()
    comparison.run_round()
    assert [row["name"] for row in comparison.rows()] == ["baseline", ngram.name]
    [(contender, error)] = failures
    assert contender is strict
    entry = left_out("mine", error)
    assert entry.reason.startswith("AssertionError")
    assert not entry.is_unfit


def test_reasons_are_one_line() -> None:
    entry = left_out("mine", ConfigError("one\ntwo"))
    assert (entry.reason, entry.is_unfit) == ("one", True)


def test_packages_that_are_missing_are_those_of_published_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec.registry.installed", lambda group=None: [])
    offered = {method.distribution for method in known_methods().values() if method.distribution}
    assert missing_distributions() == sorted(offered)
