"""`specdec plugins` and `specdec doctor`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specdec import registry
from specdec.folders import compiled_folder
from specdec.registry import Group
from specdec_cli.main import run
from specdec_cli.plugins import _print
from specdec_cli.probe import answer_of
from specdec_cli.probe_many import probe_each, probe_many

ECHO = """
from specdec import Capability, Draft, Proposer, hookimpl

class Echo(Proposer):
    name = "echo"
    capabilities = frozenset({Capability.TREE})
    implementation = "in Python"
    def propose(self, batch):
        return Draft.empty(batch.batch_size)

@hookimpl
def specdec_register_proposers():
    print("plugins may print")
    return Echo
"""


@pytest.fixture
def two(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that loads and one that does not, for this process and its children."""
    site.install("echo", {"proposers": {"echo": "echo_plugin"}}, {"echo_plugin": ECHO})
    site.install(
        "broken", {"proposers": {"broken": "broken_plugin"}}, {"broken_plugin": "import no_such_library"}
    )
    monkeypatch.setenv("PYTHONPATH", str(site.path))


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)}


@pytest.mark.usefixtures("two")
def test_the_list_is_metadata(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "--json"]) == 0
    assert rows(capsys)["broken"] == {
        "name": "broken",
        "group": "specdec.proposers",
        "distribution": "broken",
        "version": "1.0",
        "module": "broken_plugin",
        "may_load": True,
    }
    assert run(["plugins"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["NAME", "KIND", "PACKAGE", "MODULE"]
    assert ["echo", "proposers", "echo", "1.0", "echo_plugin"] in lines


@pytest.mark.usefixtures("two")
def test_check_imports_each_and_shows_errors(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    infos = [registry.find(Group.PROPOSERS, name) for name in ("echo", "broken")]
    infos += [registry.find(Group.SAMPLERS, name) for name in ("strict", "typical")]
    monkeypatch.setattr(registry, "installed", lambda: infos)  # a process for each: seconds
    assert run(["plugins", "--check", "--json"]) == 1
    found = rows(capsys)
    assert (found["echo"]["error"], found["echo"]["capabilities"]) == (None, ["tree"])
    assert found["echo"]["implementation"] == "in Python"
    assert found["broken"]["error"] == (
        "method 'broken' of broken 1.0 cannot be loaded: ModuleNotFoundError: No module named 'no_such_library' "
        "(module broken_plugin)"
    )
    assert found["strict"]["error"] is found["typical"]["error"] is None
    assert {name: row["is_lossless"] for name, row in found.items()} == {
        "echo": None, "broken": None, "strict": True, "typical": False,
    }  # fmt: skip


def test_samplers_say_whether_they_are_lossless() -> None:
    names = [info.name for info in registry.installed() if info.group is Group.SAMPLERS]
    lossless = {name for name in names if answer_of(Group.SAMPLERS, name)["is_lossless"] is True}
    lossy = {name for name in names if answer_of(Group.SAMPLERS, name)["is_lossless"] is False}
    assert lossless == {"strict", "gumbel", "probabilistic", "standard", "block"}
    assert lossy == {"typical", "synthetic"}


def test_a_lossy_sampler_is_called_so_beside_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"distribution": "core", "version": "1.0", "module": "m", "may_load": True, "capabilities": []}
    rows = [{"name": n, "group": "specdec.samplers", "error": None, "is_lossless": n != "typical"} for n in
            ("typical", "strict")]  # fmt: skip
    _print([row | known for row in rows], with_state=True)
    _, typical, strict = capsys.readouterr().out.splitlines()
    assert typical.endswith("yes, lossy")
    assert strict.endswith("yes")


@pytest.mark.usefixtures("two")
def test_what_may_not_load_is_listed_and_not_tried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_PLUGINS", "echo")
    assert run(["plugins", "--json"]) == 0
    found = rows(capsys)
    assert (found["echo"]["may_load"], found["broken"]["may_load"]) == (True, False)


@pytest.mark.parametrize(
    ("source", "timeout_s", "error"),
    [
        (
            "import os; os._exit(9)",
            120,
            "method 'bad' of bad 1.0 ended its process (exit code 9): no message",
        ),
        ("import time; time.sleep(60)", 2, "method 'bad' of bad 1.0 did not load within 2 s"),
    ],
)
def test_a_crash_or_a_hang_is_only_the_plugins_own(
    site: Any, monkeypatch: pytest.MonkeyPatch, source: str, timeout_s: float, error: str
) -> None:
    site.install("bad", {"proposers": {"bad": "bad_plugin"}}, {"bad_plugin": source})
    monkeypatch.setenv("PYTHONPATH", str(site.path))
    (result,) = probe_each([registry.find(Group.PROPOSERS, "bad")], timeout_s=timeout_s)
    assert result.error == error


@pytest.mark.slow
def test_in_one_process_a_crash_or_a_hang_is_only_the_plugins_own(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {
        "a": "from specdec import hookimpl\n@hookimpl\ndef specdec_step_finished(stats): pass\n",
        "b": "import os; os._exit(9)",
        "c": "import time; time.sleep(60)",
        "d": "import no_such_library",
    }
    for name, source in sources.items():
        site.install(name, {"observers": {name: f"{name}_plugin"}}, {f"{name}_plugin": source})
    monkeypatch.setenv("PYTHONPATH", str(site.path))
    infos = [registry.find(Group.OBSERVERS, name) for name in sources]
    errors = [result.error or "" for result in probe_many([*infos, infos[0]], timeout_s=4)]
    assert errors[1] == "observer 'b' of b 1.0 ended its process (exit code 9): no message"
    assert errors[2] == "observer 'c' of c 1.0 did not load within 4 s"
    assert "No module named 'no_such_library'" in errors[3]
    assert errors[0] == errors[4] == ""
    machine: dict[str, Any] = {}
    (result,) = probe_many(infos[1:2], timeout_s=60, machine=machine)
    assert result.error == errors[1]
    assert list(machine) == ["devices", "backends", "compiled"], "another process tells it"


def test_a_process_that_does_not_start_is_said_to(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install("a", {"observers": {"a": "a_plugin"}}, {"a_plugin": "import no_such_library"})
    monkeypatch.setattr("specdec_cli.probe_many._START_TIMEOUT_S", 0.0)
    (result,) = probe_many([registry.find(Group.OBSERVERS, "a")], timeout_s=8)
    assert result.error == "observer 'a' of a 1.0: its process did not start within 0 s"


def test_an_observer_and_a_command_are_tried_as_such(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = "from specdec import hookimpl\n@hookimpl\ndef {}: pass\n"
    site.install("watch", {"observers": {"watch": "watch_plugin"}, "commands": {"none": "watch_plugin"}},
                 {"watch_plugin": hook.format("specdec_step_finished(stats)")})  # fmt: skip
    monkeypatch.setenv("PYTHONPATH", str(site.path))
    infos = [registry.find(Group.OBSERVERS, "watch"), registry.find(Group.COMMANDS, "none")]
    watch, none = probe_each(infos, timeout_s=120)
    assert watch.error is None
    assert none.error == (
        "command 'none' of watch 1.0: module watch_plugin does not implement specdec_register_commands"
    )


@pytest.mark.usefixtures("two")
def test_doctor_tells_versions_devices_memory_and_what_loads(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setenv("SPECDEC_PLUGINS", "broken")
    assert run(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["versions"]["torch"] == torch.__version__
    assert "specdec-core" in report["versions"]
    assert report["devices"]["cpu"].startswith(f"{torch.get_num_threads()} threads")
    assert 0 < report["memory_mb"]["available"] <= report["memory_mb"]["total"]
    assert report["folders"]["compiled code"] == str(compiled_folder())
    fields = ("target", "num_ahead", "num_kept", "next_start")
    assert list(report["compiled"]) == [f"cpu {field}" for field in fields]
    assert report["backends"]["cpu"].endswith("rows of logits")
    assert report["plugins"]["sampler strict"] == "loads"
    assert "No module named 'no_such_library'" in report["plugins"]["method broken"]
    assert "method echo" not in report["plugins"]


def test_the_probe_ignores_the_current_folder(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("echo", {"proposers": {"echo": "echo_plugin"}}, {"echo_plugin": ECHO})
    monkeypatch.setenv("PYTHONPATH", str(site.path))
    (tmp_path / "torch.py").write_text("raise RuntimeError('not the real one')")
    monkeypatch.chdir(tmp_path)
    (result,) = probe_each([registry.find(Group.PROPOSERS, "echo")], timeout_s=120)
    assert result.error is None
