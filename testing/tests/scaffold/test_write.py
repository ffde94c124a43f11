"""`write_package`: few lines, valid Python, nothing overwritten."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import specdec
from specdec.errors import ConfigError
from specdec_testing.scaffold import KINDS, plugin_names, write_package
from specdec_testing.scaffold.write import next_version

MOST_LINES = 48
"""Of the module: with a key of its own, an import for each name, and its hook."""


@pytest.fixture(params=KINDS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    kind = KINDS[request.param]
    return write_package(plugin_names("my-idea", kind.group), kind, tmp_path)


def module_of(written: list[Path]) -> Path:
    [module] = [file for file in written if file.name == "my_idea.py"]
    return module


def test_a_plugin_is_short(written: list[Path]) -> None:
    lines = [line for line in module_of(written).read_text().splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES


def test_the_files_are_whole(written: list[Path]) -> None:
    assert [file.name for file in written] == ["pyproject.toml", "README.md", "my_idea.py", "test_my_idea.py"]
    for file in written:
        assert not re.search(r"\$(?! )", file.read_text()), "a name that was not filled in"
        if file.suffix == ".py":
            compile(file.read_text(), str(file), "exec")
    project = tomllib.loads(written[0].read_text())["project"]
    assert project["name"] == "specdec-my-idea"
    assert project["requires-python"] == ">=3.11"
    assert project["optional-dependencies"] == {"testing": ["specdec-testing"]}
    assert "specdec check my_idea\n" in written[1].read_text()
    [(group, names)] = project["entry-points"].items()
    assert group in {kind.group.value for kind in KINDS.values()}
    assert names == {"my_idea": "my_idea"}


def test_the_plugin_says_which_contracts_it_was_written_for(written: list[Path]) -> None:
    assert f"    api_version = {specdec.SPECDEC_API}\n" in module_of(written).read_text()


def test_the_version_bound_holds_the_installed_version_and_not_the_next(written: list[Path]) -> None:
    lines = tomllib.loads(written[0].read_text())["project"]["dependencies"]
    requirements = [Requirement(line) for line in lines]
    assert [each.name for each in requirements] in (["specdec-core"], ["specdec-core", "specdec-runtime"])
    for each in requirements:
        assert each.specifier.contains(specdec.__version__)
        assert not each.specifier.contains(next_version(specdec.__version__))


@pytest.mark.parametrize(
    ("version", "following"), [("0.1.0", "0.2"), ("0.9.3", "0.10"), ("1.0.0rc1", "2.0"), ("3.4.5", "4.0")]
)
def test_the_version_that_may_change_the_contracts(version: str, following: str) -> None:
    assert next_version(version) == following


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    kind = KINDS["proposer"]
    names = plugin_names("my-idea", kind.group)
    (tmp_path / "my-idea").mkdir()
    with pytest.raises(ConfigError, match="my-idea' already exists, and nothing is overwritten"):
        write_package(names, kind, tmp_path)
    with pytest.raises(ConfigError, match="--directory: there is no folder"):
        write_package(names, kind, tmp_path / "absent")
    assert list((tmp_path / "my-idea").iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    kind = KINDS["proposer"]
    names = plugin_names("my-idea", kind.group)
    with pytest.raises(
        ConfigError, match=r"--directory: .*my-idea.* cannot be written: No space left on device"
    ):
        write_package(names, kind, tmp_path)
