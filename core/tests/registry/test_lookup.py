"""Names: which are installed, which may load, and what to do about the others."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from specdec import PluginError, registry
from specdec.registry import Group
from specdec.registry.catalogue import known_method, known_methods

PLUGIN = """
from specdec import Draft, Proposer, hookimpl

class Known(Proposer):
    name = "{name}"
    def propose(self, batch):
        return Draft.empty(batch.batch_size)

@hookimpl
def specdec_register_proposers():
    return Known
"""


def install(site: Any, name: str, distribution: str) -> None:
    module = f"plugin_{name}"
    site.install(distribution, {"proposers": {name: module}}, {module: PLUGIN.format(name=name)})


def error_of(name: str) -> str:
    with pytest.raises(PluginError) as caught:
        registry.proposer(name)
    return str(caught.value)


def installed_methods() -> str:
    return ", ".join(sorted(info.name for info in registry.installed(Group.PROPOSERS))) or "none"


def hide(site: Any, distribution: str) -> None:
    """Put an empty package before a real one of the same name."""
    site.install(distribution, {"proposers": {}}, {}, version="0")


@pytest.mark.parametrize("known", [k for k in known_methods().values() if k.distribution])
def test_a_known_method_that_is_not_installed_is_answered_with_the_pip_line(site: Any, known: Any) -> None:
    hide(site, known.distribution)
    assert error_of(known.name) == (
        f"method {known.name!r} is not installed: pip install {known.distribution}. "
        f"Installed methods: {installed_methods()}"
    )


def test_a_misspelled_installed_method(site: Any) -> None:
    install(site, "parrot", "parrots")
    assert error_of("parot") == (
        f"there is no method 'parot': did you mean 'parrot'? Installed methods: {installed_methods()}"
    )


def test_a_misspelled_known_method_gets_the_pip_line_too(site: Any) -> None:
    hide(site, "specdec-plugin-suffix")
    assert error_of("sufix") == (
        "there is no method 'sufix': did you mean 'suffix'? It is not installed: pip install specdec-plugin-suffix. "
        f"Installed methods: {installed_methods()}"
    )


def test_a_name_like_no_other_lists_what_is_installed(site: Any) -> None:
    install(site, "parrot", "parrots")
    assert error_of("zzz") == f"there is no method 'zzz'. Installed methods: {installed_methods()}"


def test_an_unknown_sampler_lists_the_installed_ones() -> None:
    with pytest.raises(
        PluginError, match=r"there is no sampler 'stict': did you mean 'strict'\? Installed samplers: "
    ):
        registry.sampler("stict")


@pytest.mark.parametrize("allowed", ["parrot", "finch,parrot", "the-parrots", "The_Parrots , x"])
def test_specdec_plugins_names_methods_or_distributions(
    site: Any, monkeypatch: pytest.MonkeyPatch, allowed: str
) -> None:
    install(site, "parrot", "the-parrots")
    monkeypatch.setenv("SPECDEC_PLUGINS", allowed)
    assert registry.proposer("parrot").name == "parrot"


@pytest.mark.parametrize("allowed", ["", "finch"])
def test_specdec_plugins_keeps_all_others_out_but_core(
    site: Any, monkeypatch: pytest.MonkeyPatch, allowed: str
) -> None:
    install(site, "parrot", "the-parrots")
    monkeypatch.setenv("SPECDEC_PLUGINS", allowed)
    assert error_of("parrot") == (
        f"method 'parrot' of the-parrots 1.0 may not load: SPECDEC_PLUGINS={allowed} holds neither 'parrot' nor "
        "'the-parrots'"
    )
    assert registry.sampler("strict").name == "strict"


def test_an_alias_that_core_knows_finds_the_method(site: Any) -> None:
    known = next(k for k in known_methods().values() if k.aliases)
    assert known.distribution is not None
    install(site, known.name, known.distribution)
    assert registry.proposer(known.aliases[0]).name == known.name


def test_a_distribution_found_twice_counts_once(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "parrot", "parrots")
    monkeypatch.syspath_prepend(str(site.path))
    registry.reset()
    assert [i.version for i in registry.installed(Group.PROPOSERS) if i.name == "parrot"] == ["1.0"]


def test_listing_imports_neither_torch_nor_a_plugin(site: Any) -> None:
    site.install("bad", {"proposers": {"bad": "bad_plugin"}}, {"bad_plugin": "raise RuntimeError"})
    code = (
        f"import sys; sys.path.insert(0, {str(site.path)!r}); from specdec import registry; "
        "names = [i.name for i in registry.installed()]; assert 'bad' in names and 'strict' in names; "
        "print([m for m in ('torch', 'pydantic', 'transformers', 'bad_plugin') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_catalogue_gives_every_name_to_one_method() -> None:
    names = [n for k in known_methods().values() for n in (k.name, *k.aliases, *k.old_names)]
    assert len(names) == len(set(names))
    assert all(known_method(name) is not None for name in names)
    assert sum(k.is_fallback for k in known_methods().values()) == 1
    assert sum(k.draft == "class" for k in known_methods().values()) == 1
