"""The tiny recipe end to end: what it writes loads, says where it came from, and can be resumed."""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from zoo_recipe.__main__ import build_zoo, main
from zoo_recipe.corpus import read_corpus, stdlib_root
from zoo_recipe.dialogues import dialogues
from zoo_recipe.recipe import Recipe
from zoo_recipe.run import TrainedTarget, train_target
from zoo_recipe.target import next_token_loss

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class TinyZoo:
    """Folders and results of one tiny run."""

    out: Path
    work: Path
    trained: TrainedTarget
    recipe: Recipe


@pytest.fixture(scope="module")
def tiny_zoo(tmp_path_factory: pytest.TempPathFactory) -> TinyZoo:
    """The tiny recipe, end to end, run once."""
    folder = tmp_path_factory.mktemp("tiny-zoo")
    recipe = Recipe.tiny()
    trained = build_zoo(folder / "out", folder / "work", recipe, command="test")
    return TinyZoo(folder / "out", folder / "work", trained, recipe)


def manifest(zoo: TinyZoo) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((zoo.out / "manifest.json").read_text())
    return content


def prompts(zoo: TinyZoo) -> list[dict[str, str]]:
    return [
        json.loads(line) for line in lzma.decompress((zoo.out / "prompts.jsonl.xz").read_bytes()).splitlines()
    ]


def test_loads_with_plain_transformers_and_has_the_recorded_loss(tiny_zoo: TinyZoo) -> None:
    folder = tiny_zoo.out / "artefacts" / "target"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    recorded = manifest(tiny_zoo)["artefacts"]["target"]["heldout"]
    with torch.no_grad():
        losses = [
            next_token_loss(model, torch.tensor([tokenizer(row["prompt"])["input_ids"]])).item()
            for row in prompts(tiny_zoo)[: recorded["prompts_measured"]]
        ]
    assert sum(losses) / len(losses) == pytest.approx(recorded["prompts_nats_per_token"], rel=1e-3)
    out = model.generate(**tokenizer("def f(", return_tensors="pt"), max_new_tokens=3, do_sample=False)
    assert out.shape[1] > len(tokenizer("def f(")["input_ids"])


def test_loss_goes_down(tiny_zoo: TinyZoo) -> None:
    names, *points = json.loads((tiny_zoo.out / "training_log.json").read_text())["target"]
    log = [dict(zip(names, point, strict=True)) for point in points]
    assert [entry["step"] for entry in log] == [10, 20, 30]
    assert log[-1]["train_loss"] < log[0]["train_loss"] < 6.4
    assert tiny_zoo.trained.heldout.nats_per_token < 6.0
    assert tiny_zoo.trained.heldout.bits_per_byte < tiny_zoo.trained.heldout.nats_per_token


def test_manifest_names_every_file_of_the_model_and_those_held_out(tiny_zoo: TinyZoo) -> None:
    content = manifest(tiny_zoo)
    target = content["artefacts"]["target"]
    folder = tiny_zoo.out / "artefacts" / "target"
    assert {path.name for path in folder.iterdir()} == set(target["files"])
    for name, facts in target["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == facts["sha256"]
    corpus = content["corpus"]
    assert set(corpus["heldout"]) < set(tiny_zoo.recipe.only)
    assert corpus["heldout_files"] == len(corpus["heldout"]) > 0
    assert corpus["train_files"] == len(tiny_zoo.recipe.only) - len(corpus["heldout"]) > 0
    assert target["training"]["steps"] == num_steps(tiny_zoo.recipe)
    assert content["prompts"]["count"] == len(prompts(tiny_zoo)) == 16


def test_prompts_come_from_heldout_files(tiny_zoo: TinyZoo) -> None:
    heldout = manifest(tiny_zoo)["corpus"]["heldout"]
    for row in prompts(tiny_zoo):
        path = row["source"].rpartition(":")[0]
        assert path in heldout
        text = (stdlib_root() / path).read_bytes().decode()
        if row["kind"] == "edit":
            function = row["prompt"].partition(":\n")[2].removesuffix("<|assistant|>")
            assert all(line.strip() in text for line in function.splitlines())
        else:
            assert row["prompt"] in text


@pytest.mark.parametrize("before", ["step-0000015.pt", "grown/step-0000005.pt"])
def test_resume_after_a_kill_gives_the_same_weights(tiny_zoo: TinyZoo, tmp_path: Path, before: str) -> None:
    shutil.copytree(tiny_zoo.work, tmp_path, dirs_exist_ok=True)
    for newer in [*tmp_path.glob("grown/*.pt")] if before.startswith("step") else []:
        newer.unlink()
    for newer in (tmp_path / before).parent.glob("*.pt"):
        if newer != tmp_path / before:
            newer.unlink()
    resumed = train_target(tiny_zoo.recipe, tmp_path, resume=True)
    assert resumed.state.step == num_steps(tiny_zoo.recipe)
    shipped = AutoModelForCausalLM.from_pretrained(tiny_zoo.out / "artefacts" / "target").state_dict()
    for name, value in resumed.model.bfloat16().state_dict().items():
        assert torch.equal(value, shipped[name]), name


def num_steps(recipe: Recipe) -> int:
    return recipe.max_steps + recipe.growth.max_steps


def test_a_run_of_another_recipe_is_not_resumed(tiny_zoo: TinyZoo) -> None:
    with pytest.raises(ValueError, match=r"another recipe \(different: \['seed'\]\)"):
        train_target(replace(tiny_zoo.recipe, seed=2), tiny_zoo.work, resume=True)


def test_dialogues_ask_and_answer() -> None:
    files = read_corpus(stdlib_root(), only=("textwrap.py",)).split("train")
    found = dialogues(files, num_written=3, num_edited=2, seed=0)
    assert [text.split()[0] for text in found[:3]] == ["<|user|>Write"] * 3
    assert len(found) == 5
    for text in found:
        assert text.partition("<|assistant|>")[2].startswith("def ")
    for text in found[3:]:
        question, _, answer = text.partition("<|assistant|>")
        assert question.partition(":\n")[2] != answer


def test_recipe_checks_itself() -> None:
    with pytest.raises(ValueError, match="micro_batch=3 must divide batch_size=4"):
        replace(Recipe.tiny(), micro_batch=3)


def test_command_reports_what_the_user_can_mend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recipe.json").write_text("{}")
    code = main(["--out", str(tmp_path / "out"), "--work", str(tmp_path), "--tiny", "--resume"])
    assert code == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert not (tmp_path / "out").exists()


def test_default_folder_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--tiny"]) == 2
    assert "run from the root of the repository or name a folder with --out" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
