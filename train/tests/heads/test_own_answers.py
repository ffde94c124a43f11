"""`specdec train --prompts`: the target's own answers, what an interrupted run keeps, and what is reported."""

from __future__ import annotations

import json
import os
import signal

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import specdec_zoo
from specdec import LLM, SamplingParams
from specdec_cli.bench.prompt_file import ChatPrompt
from specdec_cli.main import run
from specdec_train.answers.collect import Collector
from specdec_train.answers.file import read_answers
from specdec_train.answers.template import ChatTemplate
from specdec_train.checkpoint import latest_checkpoint

pytestmark = pytest.mark.slow

TEXTS = [prompt["prompt"][:60] for prompt in specdec_zoo.prompts(24)]
SMALL = ["--batch-size", "1", "--seq-len", "128", "--heldout-permille", "300", "--max-tokens", "24"]


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [{"prompt": text} for text in TEXTS]
    lines[0] = {"turns": [TEXTS[0], "And now?"]}
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def options(prompts, out, *more):
    return ["train", "eagle3", "--prompts", str(prompts), "--out", str(out), *SMALL, *more]


def test_from_prompts_to_a_measured_head(prompts, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("specdec_train.heads.measure._MAX_TOKENS", 32)
    monkeypatch.setattr("specdec_train.heads.measure._ROUNDS", 2)  # how fast it is does not matter here
    out = tmp_path / "head"
    more = ["--self-instruct", "2", "--steps", "40", "--draft-vocab-size", "2048", "--json"]
    assert run(options(prompts, out, *more)) == 0
    report = json.loads(capsys.readouterr().out)
    answered = read_answers(tmp_path / "head.answers.jsonl")
    assert report["answers"] == len(answered) >= len(TEXTS) - 2
    assert report["speedup"] > 0.0
    config = json.loads(report["speculative_config"])
    assert (config["method"], config["model"]) == ("eagle3", str(out))
    assert 0.5 < report["draft_vocab_coverage"] <= 1.0
    assert not out.with_name("head.work").exists()

    tokenizer = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))
    asked = ChatTemplate(tokenizer).prompt_ids([{"role": "user", "content": TEXTS[1]}])
    one = next(one for one in answered if list(one.prompt) == asked)
    if one.temperature == 0.0:
        model = AutoModelForCausalLM.from_pretrained(specdec_zoo.path("target"))
        said = model.generate(torch.tensor([asked]), max_new_tokens=24, do_sample=False)
        assert said[0].tolist() == list(one.ids)
    later = [one for one in answered if tokenizer.decode(list(one.prompt)).count("And now?")]
    assert len(later) == 1
    assert len({one.source for one in answered if one.source == later[0].source}) == 1

    # What evaluation says of greedy text is what the engine accepts.
    llm = LLM(model="zoo", dtype="float32", speculative_config=config | {"num_speculative_tokens": 3})
    held = [{"prompt_token_ids": list(one.prompt)} for one in answered if one.is_held_out(300)]
    outputs = llm.generate(held, SamplingParams(temperature=0.0, max_tokens=24), use_tqdm=False)
    drafts = sum(output.metrics.num_drafts for output in outputs)
    accepted = sum(output.metrics.num_accepted_tokens for output in outputs)
    assert 1.0 + accepted / drafts == pytest.approx(report["expected_length_greedy"], abs=0.35)
    published = json.loads((out / "config.json").read_text())
    assert published["architectures"] == ["LlamaForCausalLMEagle3"]
    assert published["draft_vocab_size"] == 2048
    assert published["eagle_config"]["use_aux_hidden_state"] is True
    assert published["tie_word_embeddings"] is False


@pytest.mark.full
def test_a_stopped_run_keeps_answers_and_steps_and_its_head_can_be_written(
    prompts, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "head"
    take = Collector._take_answer

    def stop(self, *arguments):
        take(self, *arguments)
        if len(self.collected.answers) == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    more = ["--steps", "300", "--draft-vocab-size", "512", "--no-bench"]
    with monkeypatch.context() as patched:
        patched.setattr(Collector, "_take_answer", stop)
        assert run(options(prompts, out, *more)) == 130
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert "answers, kept in" in message
    assert "--resume --minutes 0" in message
    first = read_answers(tmp_path / "head.answers.jsonl")
    assert len(first) >= 5

    assert run(options(prompts, out, *more)) == 2
    assert "go on with --resume, or use them with --answers" in capsys.readouterr().err

    steps = []

    def interrupt(self, step, *rest):
        steps.append(step)
        if len(steps) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr("specdec_train.loop.RunProgress.update", interrupt)
        assert run(options(prompts, out, *more, "--resume")) == 130
    assert "stopped after step 3, kept in" in capsys.readouterr().err
    assert read_answers(tmp_path / "head.answers.jsonl")[: len(first)] == first
    assert latest_checkpoint(out.with_name("head.work")).name == "step-0000003.pt"

    assert run(options(prompts, out, *more, "--resume", "--minutes", "0", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 3
    assert (out / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "nothing to learn from: give --prompts"),
        (["--prompts", "nowhere.jsonl"], "cannot read 'nowhere.jsonl'"),
        (["--data", "text.txt", "--self-instruct", "3"], "--data trains on every token"),
    ],
)
def test_what_does_not_do_is_said_in_a_line(arguments, expected, tmp_path, capsys):
    assert run(["train", "eagle3", "--out", str(tmp_path / "head"), *arguments]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("specdec: error: ")
    assert expected in message


def test_the_template_shows_where_a_users_turn_begins_and_ends():
    tokenizer = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))
    template = ChatTemplate(tokenizer)
    turn = template.user_turn()
    assert tokenizer.decode(list(turn.opening)) == "<|user|>"
    assert tokenizer.decode([turn.end_id]) == "<|assistant|>"
    given = ChatPrompt(({"role": "user", "content": "Hi"},), (), "Hello")
    ids, count = template.answered_ids(given)
    assert tokenizer.decode(ids[:count]) == "<|user|>Hi<|assistant|>"
    assert tokenizer.decode(ids[count:]).startswith("Hello")
