"""Observers and commands: loaded when an engine starts, or when they run."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import typer

from specdec import FinishReason, PluginError, registry
from specdec.interfaces import RequestStats

WATCHER = """
from specdec import hookimpl
seen = []

@hookimpl
def specdec_request_finished(stats):
    seen.append(stats.request_id)
"""

STATS = RequestStats("r1", 3, 5, 2, 8, 3, 1.0, 2.0, FinishReason.STOP)


def test_nobody_listens_without_an_observer(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_PLUGINS", "")
    assert registry.observers() is None


def test_an_observer_is_called(site: Any) -> None:
    site.install("watch", {"observers": {"watcher": "watcher"}}, {"watcher": WATCHER})
    relay = registry.observers()
    assert relay is not None
    relay.specdec_request_finished(stats=STATS)
    import watcher  # type: ignore[import-not-found]  # a module of the fake package

    assert watcher.seen == ["r1"]


def test_a_broken_observer_is_logged_and_left_out(site: Any, caplog: pytest.LogCaptureFixture) -> None:
    site.install("watch", {"observers": {"watcher": "watcher"}}, {"watcher": WATCHER})
    site.install("bad", {"observers": {"bad": "bad_watcher"}}, {"bad_watcher": "import no_such_library"})
    with caplog.at_level(logging.WARNING, "specdec"):
        assert registry.observers() is not None
    assert [record.getMessage() for record in caplog.records] == [
        "observer 'bad' of bad 1.0 cannot be loaded: ModuleNotFoundError: No module named 'no_such_library' "
        "(module bad_watcher); it is left out"
    ]


def test_an_observer_that_may_not_load_does_not(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install("watch", {"observers": {"watcher": "watcher"}}, {"watcher": WATCHER})
    monkeypatch.setenv("SPECDEC_PLUGINS", "something-else")
    assert registry.observers() is None


def test_a_command_adds_itself(site: Any) -> None:
    source = """
from specdec import hookimpl

@hookimpl
def specdec_register_commands(app):
    app.command("hello")(lambda: None)
"""
    site.install("greeting", {"commands": {"hello": "hello_command"}}, {"hello_command": source})
    assert "hello" in {info.name for info in registry.commands()}
    app = typer.Typer()
    registry.add_command("hello", app)
    assert [command.name for command in app.registered_commands] == ["hello"]


def test_a_command_module_without_the_hook_is_told(site: Any) -> None:
    site.install("greeting", {"commands": {"hello": "hello_command"}}, {"hello_command": ""})
    with pytest.raises(
        PluginError, match="module hello_command does not implement specdec_register_commands"
    ):
        registry.add_command("hello", typer.Typer())
