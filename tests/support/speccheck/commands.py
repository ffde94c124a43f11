"""A tiny model for commands, and ways to look at what they print."""

from __future__ import annotations

from pathlib import Path

import pytest

from speccheck.saved import save_tiny
from specdec_cli import progress_bar


@pytest.fixture(autouse=True)
def is_never_slow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No lines about progress on a slow machine, but where these are what is tested."""
    if request.module.__name__.rpartition(".")[2] != "test_progress":
        monkeypatch.setattr(progress_bar, "LINE_EVERY_S", 1e6)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a tiny model and its tokenizer."""
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    """A file with two prompts, one of text and one of token ids."""
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "def main(self):"}\n{"prompt_token_ids": [7, 8, 9]}\n', encoding="utf-8")
    return str(file)
