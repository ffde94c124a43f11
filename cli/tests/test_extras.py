"""What an extra would bring is named before anything is loaded or measured."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from specdec import ConfigError
from specdec_cli import check_extra, extras
from specdec_cli.main import run


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Distributions that look as if they were not installed."""
    names: set[str] = set()

    def version_of(name: str) -> str:
        if name in names:
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(extras, "version", version_of)
    return names


def test_an_extra_that_is_there_is_no_error() -> None:
    check_extra("bench", "this")
    check_extra("models", "this")


def test_all_that_is_missing_is_named_with_the_extra(without: set[str]) -> None:
    without |= {"scipy", "matplotlib", "specdec-runtime"}
    with pytest.raises(ConfigError) as caught:
        check_extra("bench", "this")
    assert str(caught.value) == 'this needs matplotlib, scipy: pip install "specdec-cli[bench]"'
    with pytest.raises(ConfigError, match=r'this needs specdec-runtime: pip install "specdec-cli\[models\]"'):
        check_extra("models", "this")


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (["audit", "http://127.0.0.1:1"], "specdec audit"),
        (["bench", "--html", "page.html"], "--html"),
        (["tune", "--output", "found.json"], "specdec tune"),
    ],
    ids=["audit", "bench", "tune"],
)
def test_commands_ask_before_they_begin(
    command: list[str],
    what: str,
    without: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    without |= {"matplotlib", "scipy"}
    assert run(command) == 2
    assert (
        capsys.readouterr().err
        == f'specdec: error: {what} needs matplotlib, scipy: pip install "specdec-cli[bench]"\n'
    )


@pytest.mark.parametrize(
    "command", [["demo"], ["bench", "prompts.txt"], ["tune", "--output", "found.json"]], ids=str
)
def test_what_runs_models_is_asked_for_first(
    command: list[str], without: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    without |= {"specdec-kernels", "specdec-runtime"}
    assert run(command) == 2
    wanted = f'specdec {command[0]} needs specdec-kernels, specdec-runtime: pip install "specdec-cli[models]"'
    assert wanted in capsys.readouterr().err
