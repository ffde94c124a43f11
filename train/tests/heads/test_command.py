"""`specdec train`: from text to a draft model or head that an engine takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_gguf import tiny_llama, write_gguf
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import specdec_zoo
from specdec import LLM, SamplingParams
from specdec_cli.main import run
from specdec_train.heads import command
from specdec_train.heads.recipe import HEADS
from specdec_train.heads.texts import read_texts, split_texts

pytestmark = pytest.mark.slow

SOURCES = Path(command.__file__).parents[1]
SMALL = ["--steps", "4", "--batch-size", "2", "--seq-len", "64", "--heldout-permille", "200", "--no-bench"]
METHODS = {
    "draft": "draft_model",
    "eagle": "eagle",
    "eagle3": "eagle3",
    "dflash": "dflash",
    "dspark": "dflash",
    "mtp": "mtp",
    "mlp": "mlp_speculator",
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small random target with the zoo's tokenizer."""
    folder = tmp_path_factory.mktemp("target")
    AutoTokenizer.from_pretrained(specdec_zoo.path("target")).save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


def options(target: str, out: Path, *more: str) -> list[str]:
    files = [part for file in sorted(SOURCES.glob("*.py"))[:14] for part in ("--data", str(file))]
    return [*files, "--target", target, "--out", str(out), *SMALL, *more]


def test_a_target_whose_weights_are_published_in_blocks(tmp_path):
    file = str(write_gguf(tmp_path / "target.gguf", tiny_llama(num_hidden_layers=6), kind="Q8_0"))
    assert run(["train", "eagle3", *options(file, tmp_path / "head", "--num-steps", "1")]) == 0
    head = {"method": "eagle3", "model": str(tmp_path / "head"), "num_speculative_tokens": 1}
    llm = LLM(file, dtype="float32", speculative_config=head | {"on_proposer_error": "raise"})
    output = llm.generate("import os", SamplingParams(max_tokens=12, temperature=0), use_tqdm=False)[0]
    assert output.metrics.num_draft_tokens > 0


def test_files_follow_data_as_a_shell_spells_them_out(target, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("specdec_train.heads.command.read_texts", lambda files: seen.extend(files) or [])
    files = ["--data", "a.txt", "b.txt", "--target", target, "c.txt", "--data", "d.txt"]
    assert run(["train", "mlp", *files, "--out", str(tmp_path / "head")]) == 2  # there is no text in them
    assert sorted(str(file) for file in seen) == ["a.txt", "b.txt", "c.txt", "d.txt"]


@pytest.mark.parametrize("method", METHODS)
def test_what_is_trained_drafts(method, target, tmp_path, capsys):
    out = tmp_path / "head"
    steps = [] if method == "draft" else ["--num-steps", "2"]
    assert run(["train", method, *options(target, out, "--json", *steps)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["steps"] == 4
    assert len(report["acceptance"]) == (1 if method == "draft" else 2)
    assert not out.with_name("head.work").exists()
    llm = LLM(
        model=target,
        dtype="float32",
        max_model_len=256,
        speculative_config={
            "method": METHODS[method],
            "model": str(out),
            "num_speculative_tokens": 2,
            "on_proposer_error": "raise",
        },
    )
    params = SamplingParams(max_tokens=12, temperature=0.0)
    plain = LLM(model=target, dtype="float32", max_model_len=256).generate(
        "import os\n", params, use_tqdm=False
    )
    output = llm.generate("import os\n", params, use_tqdm=False)
    assert output[0].outputs[0].token_ids == plain[0].outputs[0].token_ids
    assert output[0].metrics.num_draft_tokens > 0


def test_a_published_head_goes_on_learning(target, tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    steps = ["--num-steps", "2", "--json"]
    size = ["--draft-vocab-size", "512"]
    assert run(["train", "eagle3", *options(target, first, *steps, *size)]) == 0
    before = json.loads(capsys.readouterr().out)
    assert run(["train", "eagle3", *options(target, second, *steps, "--finetune", str(first))]) == 0
    after = json.loads(capsys.readouterr().out)
    assert after["heldout_divergence"] < before["heldout_divergence"]
    old, new = (load_file(folder / "model.safetensors") for folder in (first, second))
    assert torch.equal(old["d2t"], new["d2t"])
    assert not torch.equal(old["fc.weight"], new["fc.weight"])
    assert json.loads((first / "config.json").read_text()) == json.loads((second / "config.json").read_text())


@pytest.mark.parametrize(
    ("method", "arguments", "expected"),
    [
        (
            "mtp",
            ["--finetune", "zoo"],
            "--finetune continues the training of eagle and eagle3 heads, not of mtp",
        ),
        ("eagle3", ["--finetune", "no/such/head"], "no/such/head"),
        ("eagle3", ["--finetune", "zoo"], "it is a head of another target"),
        ("eagle3", ["--finetune", "zoo", "--draft-vocab-size", "9"], "cannot change the draft vocabulary"),
    ],
)
def test_a_head_that_cannot_go_on_is_said_in_a_line(method, arguments, expected, target, tmp_path, capsys):
    assert run(["train", method, *options(target, tmp_path / "head", *arguments)]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("specdec: error: ")
    assert expected in message
    assert not (tmp_path / "head").exists()


def test_a_killed_run_goes_on_as_if_nothing_had_been(target, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(HEADS, "mlp", replace(HEADS["mlp"], checkpoint_every=25))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    more = ("--steps", "30", "--json")
    assert run(["train", "mlp", *options(target, whole, *more)]) == 0

    class Killed(BaseException):
        pass

    def killed(*arguments, **settings):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("specdec_train.loop.RunProgress.line", killed)  # the first evaluation, after step 30
        with pytest.raises(Killed):
            run(["train", "mlp", *options(target, parts, *more)])
    assert sorted(file.name for file in parts.with_name("parts.work").glob("step-*.pt")) == [
        "step-0000025.pt"
    ]
    assert run(["train", "mlp", *options(target, parts, *more, "--resume")]) == 0
    assert (whole / "model.safetensors").read_bytes() == (parts / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--data", "nowhere.txt"], "nowhere.txt cannot be read"),
        (["--seq-len", "100000"], "do not fill one window"),
        (["--target", "no/such/target"], "no/such/target"),
        (["--draft-vocab-size", "64"], "--draft-vocab-size has no effect for mlp"),
    ],
)
def test_what_does_not_do_is_said_in_a_line(arguments, expected, target, tmp_path, capsys):
    assert run(["train", "mlp", *options(target, tmp_path / "head", *arguments)]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("specdec: error: ")
    assert expected in message
    assert not (tmp_path / "head").exists()


def test_a_folder_that_holds_something_is_left_alone(target, tmp_path, capsys):
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "mine.txt").write_text("mine")
    assert run(["train", "mlp", *options(target, tmp_path / "head")]) == 2
    assert "already exists" in capsys.readouterr().err
    assert [file.name for file in (tmp_path / "head").iterdir()] == ["mine.txt"]


def test_texts_of_files_and_lines(tmp_path):
    lines = tmp_path / "texts.jsonl"
    lines.write_text('{"text": "one"}\n\n{"prompt": "two ", "response": "three"}\n')
    whole = tmp_path / "whole.txt"
    whole.write_text("four\nfive\n")
    assert read_texts([lines, whole]) == ["one", "two three", "four\nfive\n"]
    lines.write_text('{"text": "one"}\n{"txt": "two"}\n')
    with pytest.raises(ValueError, match=r"texts\.jsonl:2: needs"):
        read_texts([lines])


def test_the_side_of_a_text_does_not_depend_on_the_others():
    texts = [f"text {i}" for i in range(200)]
    train, heldout = split_texts(texts, 200)
    assert sorted(train + heldout) == sorted(texts)
    assert 20 < len(heldout) < 60
    assert split_texts(texts[:100], 200)[1] == heldout[: len(split_texts(texts[:100], 200)[1])]
    with pytest.raises(ValueError, match="leave nothing to"):
        split_texts(["one"], 1)
