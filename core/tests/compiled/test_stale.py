"""Compiled code does not outlive the sources it was made from."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from specdec.compiled.stale import drop_stale, kept_folder


@pytest.fixture
def _folder(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "compiled"))


@pytest.mark.usefixtures("_folder")
def test_what_other_sources_made_is_dropped(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        (folder / "code.py").write_text("one = 1\n")
    drop_stale(ours, theirs)
    kept = [kept_folder(folder) / f"code.{ending}" for folder in (ours, theirs) for ending in ("nbi", "nbc")]
    for file in kept:
        file.write_bytes(b"compiled")
    other = kept_folder(ours) / "notes.txt"
    other.write_bytes(b"somebody's own")
    drop_stale(ours, theirs)
    assert all(file.exists() for file in kept), "nothing has changed"
    (theirs / "code.py").write_text("one = 2\n")  # what the functions of `ours` call
    drop_stale(ours, theirs)
    assert not any(file.exists() for file in kept)
    assert other.exists()


@pytest.mark.usefixtures("_folder")
def test_a_folder_that_cannot_be_written_to_is_left_alone(tmp_path):
    (tmp_path / "code.py").write_text("one = 1\n")
    (tmp_path / "compiled").write_text("no folder")
    drop_stale(tmp_path)
    assert (tmp_path / "compiled").read_text() == "no folder"


def test_compiled_code_does_not_lie_among_the_sources():
    """numba's own word for where it keeps a function of ours."""
    from specdec.noise import host

    folder = Path(host.race._cache._cache_path)
    assert folder.parent == Path(numba.config.CACHE_DIR)
    assert not folder.is_relative_to(Path(host.__file__).parents[2])


def test_compiling_is_told_once_and_names_the_folder(tmp_path):
    code = (
        "import numpy as np; from specdec.compiled.rows import best_ids; "
        "best_ids(np.zeros((1, 4), np.float32), np.empty(1, np.int64))"
    )
    told = []
    for _ in range(2):
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        told.append(done.stderr)
    assert told == [
        f"compiling for this machine, which is done once and may take a minute or two; kept in {tmp_path}\n",
        "",
    ]
