"""Reading the checkpoint of a head, and what is said of files that are missing, damaged or of another kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specdec import ModelError
from specdec_runtime.drafting import HeadCheckpoint

TENSORS = {
    "proj.0.weight": torch.arange(6.0).reshape(2, 3),
    "head.0.weight": torch.ones(4, 2, dtype=torch.bfloat16),
    "map": torch.tensor([3, 1]),
}


@pytest.fixture
def head(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "mlp_speculator", "n_predict": 2}')
    save_file(TENSORS, tmp_path / "model.safetensors")
    return tmp_path


def shard(folder: Path) -> dict[str, dict[str, str]]:
    """Spread the tensors over two files; returns the index."""
    (folder / "model.safetensors").unlink(missing_ok=True)
    weight_map = {}
    for number, names in enumerate((("proj.0.weight",), ("head.0.weight", "map")), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: TENSORS[name] for name in names}, folder / file)
        weight_map |= dict.fromkeys(names, file)
    index = {"weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index | {"metadata": {"total_size": 56}}))
    return index


def check_whole(checkpoint: HeadCheckpoint) -> None:
    assert checkpoint.names() == tuple(sorted(TENSORS))
    assert checkpoint.has("map")
    assert not checkpoint.has("emb.0.weight")
    for name, wanted in TENSORS.items():
        assert checkpoint.shape(name) == tuple(wanted.shape)
        found = checkpoint.read(name, wanted.shape)
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


def test_a_single_file_and_its_configuration(head: Path) -> None:
    checkpoint = HeadCheckpoint(str(head))
    assert checkpoint.config == {"model_type": "mlp_speculator", "n_predict": 2}
    assert (checkpoint.path, checkpoint.directory) == (str(head), head)
    check_whole(checkpoint)


def test_shards(head: Path) -> None:
    shard(head)
    check_whole(HeadCheckpoint(str(head)))


def test_files_of_any_name(head: Path) -> None:
    (head / "model.safetensors").rename(head / "medusa_lm_head.safetensors")
    check_whole(HeadCheckpoint(str(head)))


def test_a_single_file_comes_before_shards_and_other_names(head: Path) -> None:
    shard(head)
    save_file({"only": torch.zeros(1)}, head / "model.safetensors")
    assert HeadCheckpoint(str(head)).names() == ("only",)


def test_a_directory_below_the_home_directory(head: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(head.parent))
    check_whole(HeadCheckpoint(f"~/{head.name}"))


def refused(path: Path | str, *said: str, read: str = "map", shape: tuple[int, ...] | None = None) -> None:
    with pytest.raises(ModelError) as caught:
        HeadCheckpoint(str(path)).read(read, shape)
    assert [part for part in said if part not in str(caught.value)] == [], caught.value


def test_a_missing_tensor_is_named_beside_the_nearest(head: Path) -> None:
    refused(head, "has no tensor 'emb.0.weight'", "it has head.0.weight, proj.0.weight", read="emb.0.weight")
    save_file({str(i): torch.zeros(1) for i in range(9)}, head / "model.safetensors")
    refused(head, "0, 1, 2, 3 and 5 more")


def test_a_wrong_shape_is_shown_with_the_right_one(head: Path) -> None:
    refused(head, "model.safetensors", "'proj.0.weight' has shape [2, 3] instead of [2, 4]",
            read="proj.0.weight", shape=(2, 4))  # fmt: skip


@pytest.mark.parametrize("kept", [0, 5, 40, -1], ids=["nothing", "length", "header", "data"])
def test_a_file_that_is_cut_short(head: Path, kept: int) -> None:
    file = head / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    refused(head, str(file), "cut short", "fetch it again")


def test_a_shard_that_is_cut_short(head: Path) -> None:
    shard(head)
    file = head / "model-00001-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    refused(head, str(file), "cut short")


def test_a_pointer_of_git_lfs(head: Path) -> None:
    (head / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    )
    refused(head, "model.safetensors", "git lfs pull")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "medusa_lm_head.pt"])
def test_pickles_are_refused_unread(head: Path, name: str) -> None:
    (head / "model.safetensors").unlink()
    (head / name).write_bytes(b"not even a pickle")
    refused(head, str(head / name), "is a pickle", f"`specdec convert {head} OUT --to published`")


def test_pickles_are_read_as_tensors_where_they_are_allowed(head: Path) -> None:
    (head / "model.safetensors").unlink()
    torch.save(TENSORS | {"step": 3}, head / "pytorch_model.bin")
    check_whole(HeadCheckpoint(str(head), allow_pickle=True))
    torch.save({"map": Path("x")}, head / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin cannot be read as tensors \(UnpicklingError"):
        HeadCheckpoint(str(head), allow_pickle=True).names()


def test_the_pickle_of_a_hub_is_named(head: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (head / "model.safetensors").unlink()
    files = ["config.json", "medusa_lm_head.pt"]
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *args, **kwargs: str(head))
    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", lambda *args, **kwargs: files)
    refused("owner/head", "owner/head/medusa_lm_head.pt is a pickle", "`specdec convert owner/head OUT")


def test_a_directory_without_weights(head: Path) -> None:
    (head / "model.safetensors").unlink()
    refused(head, str(head), "has no *.safetensors")


def test_two_files_with_the_same_tensor(head: Path) -> None:
    (head / "model.safetensors").rename(head / "a.safetensors")
    save_file({"map": torch.zeros(1)}, head / "b.safetensors")
    refused(head, "a.safetensors and b.safetensors both hold a tensor 'map'")


def test_an_index_that_does_not_fit_its_shards(head: Path) -> None:
    index = shard(head)
    file = head / "model.safetensors.index.json"
    file.write_text(
        json.dumps({"weight_map": {**index["weight_map"], "ln": "model-00001-of-00002.safetensors"}})
    )
    refused(head, str(file), "names tensor 'ln', which is not in model-00001-of-00002.safetensors")
    file.write_text(json.dumps({"weight_map": {"map": "model-00003-of-00003.safetensors"}}))
    refused(head, str(file), "names model-00003-of-00003.safetensors, which is not there")
    for text in ("[]", "{}", '{"weight_map": {"map": 1}}'):
        file.write_text(text)
        refused(head, str(file), "has no 'weight_map'")
    file.write_text("{")
    refused(head, str(file), "cannot be read")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "has no config.json"),
        ("{", "config.json cannot be read"),
        ("[" * 100_000, "config.json cannot be read"),
        ("[1]", "config.json holds no mapping"),
    ],
)
def test_configurations_that_are_none(head: Path, text: str | None, said: str) -> None:
    file = head / "config.json"
    file.unlink() if text is None else file.write_text(text)
    with pytest.raises(ModelError, match=said) as caught:
        _ = HeadCheckpoint(str(head)).config
    assert str(head) in str(caught.value)


def test_paths_that_lead_nowhere(head: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(head / "model.safetensors", "is a file: give the directory")
    refused("/nowhere/at/all", "there is no directory '/nowhere/at/all'")
    refused("no-such-head", "a hub id is 'owner/name'")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    refused(
        "nobody/nothing", "'nobody/nothing' is not a directory, and its files cannot be fetched from a hub"
    )
    with pytest.raises(ModelError, match="and revision 'v2'"):
        HeadCheckpoint("nobody/nothing", "v2")


def test_what_a_hub_has_is_asked_for_without_pickles(head: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(repo: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((repo, revision, allow_patterns))
        return str(head)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    check_whole(HeadCheckpoint("owner/head", "main"))
    assert asked == [("owner/head", "main", ["*.json", "*.safetensors"])]
