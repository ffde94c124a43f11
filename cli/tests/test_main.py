"""`specdec`: its commands, its errors and its exit codes."""

from __future__ import annotations

import gc
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from specdec.errors import PluginError
from specdec.registry.catalogue import known_commands
from specdec_cli.lazy import load_command
from specdec_cli.main import main, run

COMMAND = """
import typer
from specdec import hookimpl
from specdec.errors import ConfigError, ModelError, PluginError

def hello(count: int = 1, error: str = "") -> None:
    \"\"\"Say hello.\"\"\"
    if error:
        raise {"config": ConfigError, "model": ModelError, "plugin": PluginError}[error]("first\\nsecond")
    if count > 3:
        raise typer.Exit(7)
    print("hello " * count)

@hookimpl
def specdec_register_commands(app):
    app.command("hello")(hello)
"""


@pytest.fixture
def hello(site: Any) -> None:
    """A third party's command, and one that cannot be imported."""
    site.install("greetings", {"commands": {"hello": "hello_command"}}, {"hello_command": COMMAND})
    site.install(
        "broken", {"commands": {"crash": "crash_command"}}, {"crash_command": "import no_such_library"}
    )


@pytest.mark.usefixtures("hello")
def test_help_lists_every_command_and_imports_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "hello Made by greetings" in lines, "another package's command has its summary"
    assert "plugins List the installed plugins." in lines
    assert any(line.startswith("crash ") for line in lines)
    assert "hello_command" not in sys.modules


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Usage: specdec" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"specdec {version('specdec-core')}\n"


@pytest.mark.parametrize("has_triton", [False, True])
def test_a_command_ends_without_collections(
    has_triton: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They walk all that torch and transformers made, for over a second; what is frozen they leave out.

    Triton's binding writes twenty lines about leaks to standard error if what it made was left out.
    """
    monkeypatch.setattr(sys, "argv", ["specdec", "--version"])
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    if not has_triton:
        monkeypatch.delitem(sys.modules, "triton")
    try:
        with pytest.raises(SystemExit, match="0"):
            main()
        assert (gc.get_freeze_count() > 0) is not has_triton
    finally:
        gc.unfreeze()


@pytest.mark.usefixtures("hello")
def test_a_command_runs_and_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hello", "--count", "2"]) == 0
    assert capsys.readouterr().out == "hello hello \n"
    assert run(["hello", "--help"]) == 0
    assert "Say hello." in capsys.readouterr().out
    assert run(["hello", "--count", "4"]) == 7


@pytest.mark.usefixtures("hello")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["helo"], "there is no command 'helo': did you mean 'hello'? Installed commands: "),
        (["zzzz"], "there is no command 'zzzz'. Installed commands: "),
        (["--colour"], "No such option: --colour"),
        (["hello", "--cuont", "2"], "No such option: --cuont"),
        (["hello", "--count", "two"], "Invalid value for '--count': "),
        (["hello", "extra"], "Got unexpected extra argument"),
        (["hello", "--error", "config"], "first; second"),
        (["hello", "--error", "model"], "first; second"),
        (["hello", "--error", "plugin"], "first; second"),
        (["crash"], "command 'crash' of broken 1.0 cannot be loaded: ModuleNotFoundError: No module named 'no_such_library'"),
    ],
)  # fmt: skip
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"specdec: error: {message}")
    assert captured.err.count("\n") == 1


def test_an_official_command_of_another_package_names_it(
    site: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    site.install("specdec-server", {"commands": {}}, {}, version="0")  # found before the real one
    assert run(["serve"]) == 2
    assert capsys.readouterr().err.startswith(
        "specdec: error: command 'serve' is not installed: pip install specdec-server. Installed commands: "
    )


@pytest.mark.usefixtures("hello")
def test_a_package_of_ours_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(name: str) -> None:
        raise ModuleNotFoundError(
            "No module named 'specdec_runtime.structured_outputs.x'",
            name="specdec_runtime.structured_outputs.x",
        )

    monkeypatch.setattr("specdec_cli.lazy.load_command", broken)
    assert run(["hello"]) == 2
    assert capsys.readouterr().err.endswith(
        "No module named 'specdec_runtime.structured_outputs.x': pip install specdec-runtime\n"
    )


@pytest.mark.usefixtures("hello")
def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr("specdec_cli.lazy.load_command", broken)
    with pytest.raises(KeyError):
        run(["hello"])


def test_a_module_must_add_the_command_it_is_named_for(site: Any) -> None:
    modules = {"hello_command": COMMAND.replace('"hello"', '"hullo"')}
    site.install("greetings", {"commands": {"hello": "hello_command"}}, modules)
    with pytest.raises(
        PluginError, match=r"greetings 1\.0 adds no command of that name; commands it adds: hullo"
    ):
        load_command("hello")


@pytest.mark.parametrize("name", ["config", "doctor", "plugins"])
def test_the_line_in_the_list_is_that_of_the_command(name: str) -> None:
    assert load_command(name).get_short_help_str(limit=100) == known_commands()[name][1]


def test_python_runs_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "specdec_cli", "nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("specdec: error: there is no command 'nonsense'")
