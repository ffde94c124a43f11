"""Both commands name a package whose metadata cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specdec import registry
from specdec_cli.main import run


def test_plugins_check_and_doctor_name_it(
    site: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_PLUGINS", "parrot")
    folder = site.path / "lost-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "entry_points.txt").write_bytes(b"\xff")
    registry.reset()
    monkeypatch.setattr("specdec_cli.probe_many.probe_each", lambda infos, timeout_s: [])
    monkeypatch.setattr("specdec_cli.probe_many.probe_many", lambda infos, **_: [])
    assert run(["plugins", "--check", "--json"]) == 1
    (row,) = [row for row in json.loads(capsys.readouterr().out) if row["error"]]
    assert (row["name"], row["group"], row["may_load"]) == (str(folder), "package", False)
    assert "'utf-8' codec" in row["error"]
    assert run(["plugins", "--check"]) == 1
    assert f"\nthe metadata in {folder} cannot be read: UnicodeDecodeError" in capsys.readouterr().out
    assert run(["doctor", "--json"]) == 1
    assert "'utf-8' codec" in json.loads(capsys.readouterr().out)["plugins"][f"package {folder}"]
