"""A library that is newer than the tested ones is told of once, and named by errors."""

from __future__ import annotations

import logging
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from specdec import LLM, ModelError
from specdec_runtime.loading import versions

ROOT = Path(__file__).parents[3]


@pytest.fixture
def is_newer(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(versions, "TESTED", {"torch": (99, 0), "transformers": (4, 57)})
    return f"transformers {version('transformers')} is newer than the newest tested, 4.57"


def test_it_is_one_line_of_the_log(is_newer: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "specdec"):
        LLM("zoo"), LLM("zoo")
    told = [record.getMessage() for record in caplog.records if "newer than" in record.getMessage()]
    assert told == [f"{is_newer}: if something fails, try that one"]


def test_errors_name_it(is_newer: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=re.escape(f"({is_newer})")):
        LLM(str(tmp_path))
    with pytest.raises(ZeroDivisionError) as caught, versions.newer_versions_named():
        raise ZeroDivisionError
    assert caught.value.__notes__ == [is_newer]


def test_what_is_tested_daily_is_not_newer() -> None:
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for name, tested in versions.TESTED.items():
        [daily] = re.findall(rf"^{name}==(\d+)\.(\d+)", constraints, re.MULTILINE)
        assert tuple(map(int, daily)) <= tested
