from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_gguf import tiny_llama, write_gguf

from specdec.errors import ModelError
from specdec.folders import cache_folder
from specdec_runtime.gguf import convert as converting
from specdec_runtime.gguf.store import _digest, stored

STORE = """
import sys
from pathlib import Path
from specdec_runtime.gguf.store import _digest, stored
print(stored(Path(sys.argv[1]), 'float32'))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def folders(cache: Path) -> list[str]:
    """Return what the folder of models holds, but for locks and digests."""
    return sorted(
        path.name
        for path in (cache / "models").iterdir()
        if path.suffix != ".lock" and path.name != "digests"
    )


def refuse_to_convert(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("converted again")

    monkeypatch.setattr(converting, "convert", refuse)


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("SPECDEC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/specdec")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "specdec"


def test_a_file_is_dequantised_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    folder = stored(file, "float32")
    assert folders(cache) == [folder.name]
    assert sorted(path.name for path in folder.iterdir()) == [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    refuse_to_convert(monkeypatch)
    assert stored(file, "float32") == folder
    os.utime(file, (1, 1))
    assert stored(file, "float32") == folder
    (tmp_path / "moved").mkdir()
    file = file.rename(tmp_path / "moved" / "m.gguf")
    assert stored(file, "float32") == folder
    with pytest.raises(AssertionError, match="converted again"):
        stored(file, "bfloat16")


def test_other_content_at_the_same_place_is_another_model(tmp_path: Path, cache: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    first = stored(file, "float32")
    write_gguf(file, tiny_llama(seed=1))
    second = stored(file, "float32")
    assert folders(cache) == sorted([first.name, second.name])


def test_a_remembered_digest_that_is_damaged_is_made_again(tmp_path: Path) -> None:
    file, models = tmp_path / "m.gguf", tmp_path / "models"
    file.write_bytes(b"weights")
    digest = _digest(file, models)
    assert digest == hashlib.sha256(b"weights").hexdigest()
    (remembered,) = (models / "digests").iterdir()
    for damaged in (b"", b"0123", b"\xff" * 64):
        remembered.write_bytes(damaged)
        assert _digest(file, models) == digest
        assert remembered.read_text() == digest


@pytest.mark.slow
def test_two_processes_at_once(tmp_path: Path, cache: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    running = [
        subprocess.Popen([sys.executable, "-c", STORE, str(file)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [process.communicate(timeout=240)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert told == [str(stored(file, "float32"))] * 2
    assert folders(cache) == [Path(told[0]).name]


def test_what_a_killed_process_left_behind_goes(tmp_path: Path, cache: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    folder = stored(file, "float32")
    folder.rename(folder.with_name(f".{folder.name}.killed.part"))
    assert stored(file, "float32") == folder
    assert folders(cache) == [folder.name]


def test_a_full_disk_leaves_nothing(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(file: Path, dtype: str, folder: Path, **_: object) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(converting, "convert", fill)
    file = write_gguf(tmp_path / "m.gguf")
    with pytest.raises(ModelError) as caught:
        stored(file, "float32")
    assert str(caught.value) == (
        f"{file} cannot be kept as safetensors in {cache / 'models'} (No space left on device): make room there, or set "
        "SPECDEC_CACHE to another folder"
    )
    assert folders(cache) == []


def test_a_broken_file_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match="is not a GGUF file, or is damaged"):
        stored(file, "float32")
    assert folders(cache) == []


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").touch()
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "taken"))
    file = write_gguf(tmp_path / "m.gguf")
    with pytest.raises(ModelError, match="set SPECDEC_CACHE to another folder"):
        stored(file, "float32")
