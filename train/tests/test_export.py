"""Folders appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_train.export import replaced_folder


def test_replaces_the_whole_folder(tmp_path: Path) -> None:
    target = tmp_path / "artefacts" / "target"
    for name in ("first", "second"):
        with replaced_folder(target) as staging:
            (staging / name).write_text(name)
    assert [path.name for path in target.iterdir()] == ["second"]
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def fail_half_way(target: Path) -> None:
    """Begin to write a folder and give up."""
    with replaced_folder(target) as staging:
        (staging / "new").write_text("new")
        raise RuntimeError("half way")


def test_an_error_leaves_the_old_folder(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with replaced_folder(target) as staging:
        (staging / "old").write_text("old")
    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way(target)
    assert [path.name for path in target.iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
