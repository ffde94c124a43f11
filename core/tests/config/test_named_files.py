"""Files that a checkpoint has or names are in its own folder: everything else is refused by its name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import specdec_zoo
from specdec import LLM, ConfigError, ModelError
from specdec.config import Checkpoint, inside, target_of

LEADING_OUT = (
    "../other/x", "x/../../other/x", "..", "/etc/passwd", "..\\other\\x", "C:\\x", "C:x", "CON", "sub/nul.txt", "link",
    "folder/x", "loop", "x\0", "", ".", "a\nb", "y" * 300, "pipe", "sub", 5, None, True, ["x"], {"x": 1}, 1.5,
)  # fmt: skip


ENTRIES = ("link", "loop", "pipe")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file, one in a folder of its own, links out of it, and a pipe; a folder beside it."""
    own, other = tmp_path / "model", tmp_path / "other"
    (own / "sub").mkdir(parents=True)
    other.mkdir()
    for file in (own / "x", own / "sub" / "x", other / "x"):
        file.write_text("{}")
    (own / "link").symlink_to("../other/x")
    (own / "folder").symlink_to(other)
    (own / "near").symlink_to("sub/x")
    (own / "loop").symlink_to("loop")
    os.mkfifo(own / "pipe")
    return own


@pytest.mark.parametrize("name", LEADING_OUT, ids=repr)
def test_what_leads_out_is_refused_by_its_name(folder: Path, name: object) -> None:
    with pytest.raises(ModelError) as caught:
        inside(folder, name, "index.json")
    told = str(caught.value)
    assert told.startswith(f"index.json names {ascii(name)[:50]}")
    assert "\n" not in told


@pytest.mark.parametrize(
    "name", ["x", "sub/x", "near", "./x", "not there", "..data", "a..b", "console.json", "ä"]
)
def test_what_stays_inside_is_a_path(folder: Path, name: str) -> None:
    assert inside(folder, name, "index.json") == folder / name


def test_snapshots_of_a_hub_link_to_the_blobs_of_their_repository_only(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "models--a--b/snapshots/0f", tmp_path / "models--a--b/blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    other = tmp_path / "models--c--d/blobs"
    other.mkdir(parents=True)
    for place in (blobs, other):
        (place / "1a").write_text('{"model_type": "llama"}')
    (snapshot / "config.json").symlink_to("../../blobs/1a")
    (tmp_path / "mine").symlink_to(snapshot)
    for place in (snapshot, tmp_path / "mine"):
        assert Checkpoint(str(place)).config == {"model_type": "llama"}
    (snapshot / "tokenizer.json").symlink_to("../../../models--c--d/blobs/1a")
    with pytest.raises(ModelError, match=r"names 'tokenizer\.json', which leads to .*models--c--d"):
        inside(snapshot, "tokenizer.json", snapshot)
    blobs.rename(tmp_path / "moved")
    blobs.symlink_to(tmp_path)  # a downloaded folder may have the same form
    (tmp_path / "1a").write_text("{}")
    with pytest.raises(ModelError, match="out of its folder"):
        inside(snapshot, "config.json", snapshot)


def written(folder: Path, file: str, content: Any) -> Checkpoint:
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / file).write_text(json.dumps(content))
    return Checkpoint(str(folder))


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("model.safetensors.index.json", {"weight_map": {"a": "x", "b": "../other/x"}}, "names '../other/x'"),
        ("pytorch_model.bin.index.json", {"weight_map": {"a": "/etc/x"}}, "names '/etc/x'"),
        ("config.json", {"transformers_weights": "../other/x"}, "'transformers_weights' of"),
        ("config.json", {"auto_map": {"AutoConfig": "../other/code.Class"}}, "'auto_map' of"),
        ("config.json", {"auto_map": {"AutoConfig": "{other}--code.Class"}}, "'auto_map' of"),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": [None, "/x.Class"]}}, "'auto_map' of"),
        ("tokenizer_config.json", {"tokenizer_file": "{other}/x"}, "'tokenizer_file' of"),
        ("tokenizer_config.json", {"vocab_file": "../other/x"}, "'vocab_file' of"),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["x", "../other/x"]}, "'fast_tokenizer_files' of"),
    ],
)
def test_names_in_its_files(folder: Path, file: str, content: Any, told: str) -> None:
    for entry in ENTRIES:
        (folder / entry).unlink()
    other = str(folder.parent / "other")
    checkpoint = written(folder, file, json.loads(json.dumps(content).replace("{other}", other)))
    with pytest.raises(ModelError) as caught:
        checkpoint.check_names()
    assert told in str(caught.value)


def test_paths_of_another_machine_and_code_of_a_repository_do_no_harm(folder: Path) -> None:
    for entry in ENTRIES:
        (folder / entry).unlink()
    old = {
        "tokenizer_file": "/home/them/tokenizer.json",
        "special_tokens_map_file": str(folder.parent / "other/x"),
    }
    written(folder, "tokenizer_config.json", old).check_names()
    written(
        folder, "config.json", {"auto_map": {"AutoConfig": "owner/name--code.Class", "x": "code.Class"}}
    ).check_names()


@pytest.mark.parametrize("entry", ENTRIES)
def test_entries_that_lead_out_are_found_before_a_library_opens_them(folder: Path, entry: str) -> None:
    for other in ENTRIES:
        if other != entry:
            (folder / other).unlink()
    with pytest.raises(ModelError, match=f"names '{entry}', which "):
        written(folder, "config.json", {}).check_names()
    (folder / entry).unlink()
    templates = folder / "additional_chat_templates"
    templates.symlink_to(folder.parent / "other")
    with pytest.raises(ModelError, match="additional_chat_templates"):
        Checkpoint(str(folder)).check_names()


@pytest.mark.parametrize("name", ["/some/target", "../target", "~/target", "~nobodyhere/x", "a/b/c", "near"])
def test_the_target_of_a_speculator_is_on_a_hub(
    checkpoint: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = {"proposal_methods": [{"speculative_tokens": 4}], "verifier": {"name_or_path": name}}
    model = checkpoint("speculator", {"speculators_model_type": "eagle3", "speculators_config": described})
    (Path(model) / "near").mkdir()
    monkeypatch.chdir(model)
    with pytest.raises(ConfigError, match="verifier.name_or_path of its config.json is") as caught:  # noqa: RUF043
        target_of(model)
    assert repr(name) in str(caught.value)


def test_a_target_names_no_shards_elsewhere(tmp_path: Path) -> None:
    folder, weights = tmp_path / "model", "model.safetensors"
    folder.mkdir()
    for file in Path(specdec_zoo.path("draft")).iterdir():
        os.link(file.resolve(), folder / file.name)
    names = Checkpoint(str(folder)).tensor_files
    (folder / weights).rename(tmp_path / weights)
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, f"../{weights}")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=rf"names '\.\./{weights}', which leads out"):
        LLM(str(folder))


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ModelError, match=r"'config\.json', which is no ordinary file"):
        LLM(str(tmp_path))
