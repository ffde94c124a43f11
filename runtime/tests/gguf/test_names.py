from __future__ import annotations

from pathlib import Path

import pytest
import torch
from speccheck.model_files import MAGIC, write

from specdec import ConfigError, ModelError
from specdec_runtime.gguf.files import stored_dtype
from specdec_runtime.gguf.names import hub_gguf, local_gguf


def test_a_file_and_a_folder_with_one(tmp_path: Path) -> None:
    folder = write(tmp_path / "f", "a.gguf", "mmproj-a.gguf", "README.md")
    assert local_gguf(str(folder)) == folder / "a.gguf"
    assert local_gguf(str(folder / "a.gguf")) == folder / "a.gguf"
    assert local_gguf(str(folder / "a.gguf"), "a.gguf") == folder / "a.gguf"
    (folder / "sha256-1234").write_bytes(MAGIC)  # as some programs keep them
    assert local_gguf(str(folder / "sha256-1234")) == folder / "sha256-1234"


def test_several_files_are_listed(tmp_path: Path) -> None:
    folder = write(tmp_path, "b.gguf", "a.gguf")
    with pytest.raises(ConfigError) as caught:
        local_gguf(str(folder))
    assert str(caught.value) == (
        f"{folder} has several GGUF files, give the path of one of them or gguf_file=: a.gguf, b.gguf"
    )
    assert local_gguf(str(folder), "b.gguf") == folder / "b.gguf"
    with pytest.raises(ConfigError, match=r"gguf_file='c.gguf': .* has no such file; it has a.gguf, b.gguf"):
        local_gguf(str(folder), "c.gguf")
    with pytest.raises(ConfigError, match=r"the model is the file .* already, leave it out"):
        local_gguf(str(folder / "a.gguf"), "b.gguf")


def test_safetensors_beside_it_come_first(tmp_path: Path) -> None:
    folder = write(tmp_path, "a.gguf", "model.safetensors", "config.json")
    assert local_gguf(str(folder)) is None
    assert local_gguf(str(folder), "a.gguf") == folder / "a.gguf"
    assert local_gguf(str(write(tmp_path / "none", "config.json"))) is None


def test_what_is_no_gguf_file(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"version https://git-lfs")
    with pytest.raises(ModelError, match=r"a.gguf is not a GGUF file, or is damaged"):
        local_gguf(str(tmp_path / "a.gguf"))
    with pytest.raises(ConfigError, match=r"there is no file '.*missing.gguf'"):
        local_gguf(str(tmp_path / "missing.gguf"))
    parts = write(tmp_path / "parts", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf")
    with pytest.raises(ModelError, match="llama-gguf-split --merge"):
        local_gguf(str(parts))


def test_a_repository_in_the_cache_of_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreachable: None
) -> None:
    repository = tmp_path / "models--owner--m-GGUF"
    snapshot = write(repository / "snapshots" / "abc", "m.gguf")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert hub_gguf("owner/m-GGUF") == snapshot / "m.gguf"
    assert hub_gguf("owner/m-GGUF", gguf_file="m.gguf") == snapshot / "m.gguf"
    assert hub_gguf("owner/m-GGUF/m.gguf") == snapshot / "m.gguf"
    write(snapshot, "n.gguf")
    with pytest.raises(ConfigError, match=r"owner/m-GGUF has several GGUF files, .*: m.gguf, n.gguf"):
        hub_gguf("owner/m-GGUF")


def test_a_hub_that_cannot_be_reached(unreachable: None) -> None:
    for name in ("nobody/nothing-gguf", "nobody/nothing/a.gguf"):
        with pytest.raises(ModelError) as caught:
            hub_gguf(name)
        assert str(caught.value) == (
            f"{name} cannot be fetched from a hub or read from its cache: the hub cannot be reached"
        )


def test_the_types_that_weights_are_kept_in() -> None:
    assert stored_dtype("auto") == stored_dtype(torch.bfloat16) == "bfloat16"
    assert stored_dtype("half") == "float16"
    assert stored_dtype("double") == stored_dtype(torch.float32) == "float32"
    with pytest.raises(ConfigError, match="dtype='int4' is not one of"):
        stored_dtype("int4")
