"""A file given in place of a model is told what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specdec import LLM, ConfigError, ModelError, PluginError
from specdec.config.file_kind import kind_of
from specdec.config.model_name import check_name, resolve_name

KINDS = {
    b"": "an empty file",
    b"version https://git-lfs.github.com/spec/v1\n": "a pointer of Git LFS",
    b"PK\3\4rest": "a zip archive, as torch.save writes",
    b"\x80\2}q\0.": "a pickle",
    b'{"model_type": "llama"}': "text in JSON",
    b"\2\0\0\0\0\0\0\0{}": "a safetensors file, the weights alone",
    b"GGU": "a file of another kind",
    b"import os\n": "a file of another kind",
}


@pytest.mark.parametrize("content", KINDS, ids=repr)
def test_a_file_that_is_no_model_needs_nothing_that_reads_gguf(
    tmp_path: Path, site: Any, content: bytes
) -> None:
    site.install("specdec-runtime", {"parts": {}}, {}, version="0")  # found before the real one
    for name in ("model.bin", "gguf-model"):
        file = tmp_path / name
        file.write_bytes(content)
        assert kind_of(file).startswith(KINDS[content])
        assert resolve_name(str(file)) == str(file)
        told = f"'{file}' is {KINDS[content]}"
        with pytest.raises(ConfigError) as caught:
            check_name(str(file), "MODEL")
        assert told in str(caught.value)
    named = tmp_path / "model.gguf"
    named.write_bytes(content)
    with pytest.raises(ModelError, match=f"is not a GGUF file, or is damaged: it is {KINDS[content]}"):
        resolve_name(str(named))


@pytest.mark.parametrize("content", KINDS, ids=repr)
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    for name in ("model.bin", "gguf-model"):
        file = tmp_path / name
        file.write_bytes(content)
        with pytest.raises(ModelError) as refused:
            LLM(str(file))
        assert f"'{file}' is {KINDS[content]}" in str(refused.value)


def test_a_gguf_file_of_any_name_does(tmp_path: Path, site: Any) -> None:
    site.install("specdec-runtime", {"parts": {}}, {}, version="0")
    file = tmp_path / "model"
    file.write_bytes(b"GGUF\3\0\0\0")
    with pytest.raises(PluginError, match=r"is read as a GGUF file: .*pip install specdec-runtime"):
        resolve_name(str(file))


@pytest.mark.parametrize(
    "name", ["x" * 5000, "~nobodyhere/model", "x\0y", "/proc/self/mem/x", "/no/such-gguf"]
)
def test_names_that_no_file_system_takes(name: str) -> None:
    with pytest.raises(ModelError, match="there is no directory"):
        LLM(name)
    with pytest.raises(ConfigError, match="there is no directory"):
        check_name(name, "MODEL")
