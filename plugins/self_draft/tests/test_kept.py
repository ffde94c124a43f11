"""Rounded weights are read where the same ones were rounded before, and rounded again where they cannot be."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import nn

from specdec.folders import CACHE_VARIABLE
from specdec_plugin_self_draft import form, kept
from specdec_plugin_self_draft.form import _rounded
from specdec_runtime.interfaces import QuantizedLinear


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(kept, "_LEAST_WEIGHTS", 1)
    return tmp_path / "self"


def linears(seed: int = 0) -> dict[str, nn.Linear]:
    torch.manual_seed(seed)
    return {"a": nn.Linear(64, 8, dtype=torch.bfloat16), "b": nn.Linear(32, 8, bias=False)}


def rounded(seed: int = 0, weights: str = "int4") -> dict[str, QuantizedLinear]:
    maps = linears(seed)
    return _rounded(maps, dict.fromkeys("ab", weights), maps["b"], 32)


def fail(*_: object) -> None:
    raise AssertionError("it rounds again")


def test_equal_weights_are_rounded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rounded()
    monkeypatch.setattr(form, "quantized", fail)
    again = rounded()
    for name, linear in first.items():
        assert again[name].state_dict().keys() == linear.state_dict().keys()
        for key, value in linear.state_dict().items():
            assert torch.equal(again[name].state_dict()[key], value)
    for other in ({"seed": 1}, {"weights": "int8"}):
        with pytest.raises(AssertionError, match="rounds again"):
            rounded(**other)
    assert len(list(folder.iterdir())) == 1


def test_small_models_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_LEAST_WEIGHTS", 2**25)
    rounded()
    assert not folder.exists()


def test_a_damaged_file_is_written_anew(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = rounded()
    [file] = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    with caplog.at_level(logging.WARNING, "specdec"):
        again = rounded()
    assert f"cannot read {file}" in caplog.text
    assert torch.equal(again["a"].packed, first["a"].packed)
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_made_costs_nothing_else(folder: Path) -> None:
    folder.write_text("not a folder")
    assert rounded().keys() == {"a", "b"}


def test_a_folder_that_is_only_read_serves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounded(weights="auto")

    def refuse(*_: object) -> None:
        raise OSError("read-only file system")

    monkeypatch.setattr(kept.os, "utime", refuse)
    monkeypatch.setattr(form, "quantized", fail)
    monkeypatch.setattr(form, "is_found_again", fail)
    assert rounded(weights="auto").keys() == {"a", "b"}


def test_only_the_last_files_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MOST_FILES", 2)
    for seed in range(4):
        rounded(seed)
    monkeypatch.setattr(form, "quantized", fail)
    rounded(3)
    rounded(2)
    assert len(list(folder.iterdir())) == 2
