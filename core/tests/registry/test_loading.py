"""Loading a plugin: lazily, once, checked, and loud about what is wrong."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from specdec import PluginError, interfaces, registry

ECHO = """
from specdec import Draft, Proposer, hookimpl

class Echo(Proposer):
    name = "echo"
    aliases = ("repeat",)
    def propose(self, batch):
        return Draft.empty(batch.batch_size)

class Other(Echo):
    name = "other"
    aliases = ()

@hookimpl
def specdec_register_proposers():
    return [Echo, Other]
"""


def install(site: Any, source: str, name: str = "echo") -> None:
    site.install("specdec-plugin-echo", {"proposers": {name: "echo_plugin"}}, {"echo_plugin": source})


def error_of(name: str = "echo") -> str:
    with pytest.raises(PluginError) as caught:
        registry.proposer(name)
    return str(caught.value)


def test_only_what_is_asked_for_is_imported(site: Any) -> None:
    site.install(
        "two-plugins",
        {"proposers": {"echo": "echo_plugin", "crash": "crash_plugin"}},
        {"echo_plugin": ECHO, "crash_plugin": "raise SystemExit('never import me')"},
    )
    assert {"echo", "crash"} <= {info.name for info in registry.installed("specdec.proposers")}
    assert "echo_plugin" not in sys.modules
    assert registry.proposer("echo").name == "echo"
    assert "crash_plugin" not in sys.modules


def test_a_module_behind_several_entry_points_is_registered_once(site: Any) -> None:
    names = {"echo": "echo_plugin", "repeat": "echo_plugin", "other": "echo_plugin"}
    site.install("specdec-plugin-echo", {"proposers": names}, {"echo_plugin": ECHO})
    assert registry.proposer("repeat") is registry.proposer("echo")
    assert registry.proposer("other").name == "other"


def test_a_broken_import_names_distribution_version_and_cause(site: Any) -> None:
    install(site, "import no_such_library")
    assert error_of() == (
        "method 'echo' of specdec-plugin-echo 1.0 cannot be loaded: "
        "ModuleNotFoundError: No module named 'no_such_library' (module echo_plugin)"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("import asyncio; raise asyncio.CancelledError('no')", "CancelledError: no"),
        (
            "raise BaseExceptionGroup('many', [KeyboardInterrupt()])",
            "BaseExceptionGroup: many (1 sub-exception)",
        ),
        (
            "raise type('Mute', (Exception,), {'__str__': lambda self: exit(1)})",
            "Mute (it cannot be printed)",
        ),
    ],
)
def test_a_module_that_ends_the_process_does_not(site: Any, line: str, message: str) -> None:
    install(site, line)
    assert f"specdec-plugin-echo 1.0 cannot be loaded: {message} (module" in error_of()


def test_ctrl_c_ends_an_import(site: Any) -> None:
    install(site, "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        registry.proposer("echo")


def test_two_distributions_that_claim_one_name_are_both_named(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, ECHO)
    site.install("echo-fork", {"proposers": {"echo": "echo_fork"}}, {"echo_fork": ECHO}, version="2.1")
    assert error_of() == (
        "method 'echo' is claimed by echo-fork 2.1 and specdec-plugin-echo 1.0: uninstall one of them, or name one in "
        "SPECDEC_PLUGINS"
    )
    monkeypatch.setenv("SPECDEC_PLUGINS", "specdec-plugin-echo")
    assert registry.proposer("echo").__module__ == "echo_plugin"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("def specdec_register_proposers", "def specdec_register_proposer",
         "echo_plugin implements an unknown hook 'specdec_register_proposer'; did you mean 'specdec_register_proposers'?"),
        ("def specdec_register_proposers():", "def specdec_register_proposers(config):", "config"),
        ("@hookimpl", "",
         "echo_plugin does not implement specdec_register_proposers; mark specdec_register_proposers with @specdec.hookimpl"),
        ("class Echo(Proposer)", "class Echo", "Echo must be a subclass of specdec.interfaces.Proposer"),
        ("[Echo, Other]", "['echo']", "'echo' must be a subclass of specdec.interfaces.Proposer"),
        ("[Echo, Other]", "Echo(None, None)", "give the class Echo, not an object of it"),
        ("def propose(", "def guess(", "class Echo is abstract: implement propose"),
        ('name = "echo"', 'name = "echo"\n    api_version = 99',
         "class Echo was written for api_version 99, this specdec has 1: upgrade specdec-core"),
        ('name = "echo"', 'name = "echo"\n    api_version = 0',
         "class Echo was written for api_version 0, this specdec has 1: upgrade the plugin"),
        ('name = "echo"', 'name = "ecco"',
         "no class has the name or alias 'echo' among what specdec_register_proposers in echo_plugin returns: "
         "Echo (name 'ecco'), Other (name 'other')"),
        ("[Echo, Other]", "[Echo, Echo]", "several classes have the name or alias 'echo'"),
        ("[Echo, Other]", "[]", "returns: nothing"),
        ('name = "echo"', 'name = "echo"\n    Config = dict',
         "class Echo: Config must be a subclass of specdec.interfaces.ProposerConfig"),
        ('name = "echo"', 'name = "echo"\n    config = dict',
         "class Echo has a class attribute 'config', which is not read: it is called 'Config'"),
        ('name = "echo"', 'name = "echo"\n    Capabilities = frozenset()', "'Capabilities', which is not read: it is called"),
        ('name = "echo"', 'name = "echo"\n    args = dict', "a class attribute 'args', which is not read: it is called 'Args'"),
        ("return [Echo, Other]", "raise ValueError('not today')",
         "specdec_register_proposers in echo_plugin raised ValueError: not today"),
    ],
)  # fmt: skip
def test_a_plugin_that_breaks_the_contract_is_told_what_is_wrong(
    site: Any, old: str, new: str, message: str
) -> None:
    assert old in ECHO
    install(site, ECHO.replace(old, new, 1))
    told = error_of()
    assert told.startswith("method 'echo' of specdec-plugin-echo 1.0")
    assert message in told
    assert error_of() == told, "asking again gives the same answer"


def test_a_class_that_says_no_version_is_for_the_first_one(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never taken for one that was written for what is installed."""
    install(site, ECHO)
    monkeypatch.setattr(interfaces, "SPECDEC_API", 2)
    assert error_of().endswith(
        "class Echo says no api_version, which means 1, and this specdec has 2: upgrade the plugin, or declare api_version = 2 "
        "in a class that was written for it"
    )


@pytest.mark.parametrize("where", ["class", "base"])
def test_a_version_may_be_said_by_a_base(site: Any, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    said = ECHO.replace('name = "echo"', 'name = "echo"\n    api_version = 2', 1)
    if where == "base":
        said = ECHO.replace(
            "class Echo(Proposer)", "class Base(Proposer):\n    api_version = 2\n\nclass Echo(Base)", 1
        )
    install(site, said)
    assert "was written for api_version 2, this specdec has 1: upgrade specdec-core" in error_of()
    monkeypatch.setattr(interfaces, "SPECDEC_API", 2)
    assert registry.proposer("echo").name == "echo"


@pytest.mark.parametrize("base", [interfaces.Proposer, interfaces.Sampler, interfaces.Scorer])
def test_the_base_classes_say_the_first_version(base: Any) -> None:
    assert base.api_version == 1


def test_a_broken_plugin_that_nobody_asked_for_breaks_nothing(site: Any) -> None:
    install(site, ECHO.replace("def specdec_register_proposers", "def specdec_register_proposer"))
    site.install("good", {"proposers": {"other": "good_plugin"}}, {"good_plugin": ECHO})
    error_of("echo")
    assert registry.proposer("other").name == "other"


def test_an_entry_point_names_a_module_and_nothing_in_it(site: Any) -> None:
    site.install("wrong", {"proposers": {"echo": "echo_plugin:Echo"}}, {"echo_plugin": ECHO})
    assert "an entry point must name a module, not an object in it; got 'echo_plugin:Echo'" in error_of()


def test_samplers_and_scorers_of_core_come_through_the_same_door() -> None:
    assert registry.sampler("gumbel") is registry.sampler("strict")
    assert registry.sampler("strict").is_lossless
    assert registry.scorer("transformers").name == "transformers"


def test_a_sampler_says_whether_it_is_lossless(site: Any) -> None:
    source = """
from specdec import Sampler, hookimpl

class Coin(Sampler):
    name = "coin"
    def verify(self, scores, batch): ...

@hookimpl
def specdec_register_samplers():
    return Coin
"""
    site.install("coins", {"samplers": {"coin": "coin_plugin"}}, {"coin_plugin": source})
    with pytest.raises(
        PluginError, match=re.escape("sampler 'coin' of coins 1.0: class Coin has no class attribute")
    ):
        registry.sampler("coin")
