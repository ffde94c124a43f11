"""`specdec new`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specdec_cli.main import run
from specdec_testing.scaffold import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_is_written_where_it_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    assert run(["new", "my-idea", "--kind", kind, "--directory", str(tmp_path)]) == 0
    *files, empty, following = capsys.readouterr().out.splitlines()
    assert [Path(file) for file in files] == [
        tmp_path / "my-idea" / name
        for name in ("pyproject.toml", "README.md", "my_idea.py", "tests/test_my_idea.py")
    ]
    assert all(Path(file).is_file() for file in files)
    assert (empty, following) == ("", f"next: pip install -e {tmp_path}/my-idea && specdec check my_idea")


def test_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["new", "my-idea", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["name"], report["distribution"]) == ("my_idea", "specdec-my-idea")
    assert report["files"][2] == "my-idea/my_idea.py"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["My Idea"], "name 'My Idea': use lower-case words"),
        (["medusa"], "name 'medusa' is that of a published method"),
        (
            ["my-idea", "--kind", "policy"],
            "--kind: 'policy' is none of proposer, head, tree, sampler, scorer, backend: how much",
        ),
        (["my-idea", "--kind", "idea"], "--kind: 'idea' is none of proposer, head, tree, sampler, scorer"),
        (["my-idea", "--directory", "nowhere"], "--directory: there is no folder 'nowhere'"),
        (["there"], "'there' already exists, and nothing is overwritten"),
        ([], "Missing argument 'NAME'"),
    ],
)
def test_what_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    assert run(["new", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"specdec: error: {message}")
    assert captured.err.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["there"]


def test_where_pytest_is_missing_the_next_step_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("specdec_testing.cli.new.find_spec", lambda name: None)
    assert run(["new", "my-idea", "--directory", str(tmp_path)]) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    assert told == f"next: pip install -e '{tmp_path}/my-idea[testing]' && specdec check my_idea"
