"""`specdec check-head` tells what a head was trained for, whatever its config.json says."""

from __future__ import annotations

import argparse
import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from eagle_check.layout import Layout, write_head
from eagle_check.shape import Shape, random_tensors
from eagle_check.targets import make_head, make_reference
from head_check.target import VOCAB, check, target_model

import specdec_zoo
from specdec import ConfigError
from specdec_cli.main import run
from specdec_plugin_eagle import EagleSettings
from specdec_plugin_eagle.loading import load_eagle3
from specdec_plugin_eagle.readings import window_of
from specdec_runtime.drafting import HeadCheckpoint
from specdec_runtime.drafting.checking.check import check_head
from specdec_runtime.interfaces import PackedBatch, Segment
from specdec_runtime.runner import ModuleRunner

TOKENS = 2048


HEADS = {
    "3": Shape(num_logits=40, has_map=True, has_fc_norms=True),
    "3 with a window": Shape(window=5, is_normed_carry=True, is_normed_residual=True),
    "1": Shape(is_eagle3=False, has_own_lm_head=False, has_para_norms=True),
}


@pytest.mark.parametrize("kind", HEADS)
def test_likelihoods_are_those_of_the_reference(kind, tmp_path) -> None:
    shape, model = HEADS[kind], target_model()
    keys = {"sliding_window": shape.window, "layer_types": ["sliding_attention"]} if shape.window else {}
    folder, tensors = make_head(tmp_path / "head", shape, Layout(keys=keys))
    tokens = torch.randint(VOCAB, (24,), generator=torch.Generator().manual_seed(1)).tolist()
    file = tmp_path / "text.jsonl"
    file.write_text(json.dumps({"token_ids": tokens}))
    own = check_head(folder, model, file)["readings"][0]
    reference = make_reference(shape, tensors)
    places = {int(target): place for place, target in enumerate(reference.target_ids)}

    def mean(path_length: int) -> float:
        found = []
        for end in range(2 + path_length, len(tokens)):
            text, path = tokens[: end - path_length], tokens[end - path_length : end]
            states = check().states(text, (1, 3, 6) if shape.is_eagle3 else ())
            logs = reference.after(text, states, path).log_softmax(-1)
            if tokens[end] in places:
                found.append(float(logs[places[tokens[end]]]))
        return sum(found) / len(found)

    assert own["first"] == pytest.approx(mean(0), abs=1e-5)
    assert own["second"] == pytest.approx(mean(1), abs=1e-5)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that the zoo's target knows well enough."""
    path = tmp_path_factory.mktemp("text") / "argparse.txt"
    path.write_text(inspect.getsource(argparse)[:16000])
    return path


def rewritten(folder: Path, method: str = "eagle3", **keys: Any) -> str:
    """Save the zoo's head with other keys."""
    shutil.copytree(specdec_zoo.path(method), folder / "head")
    file = folder / "head/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))
    return str(folder / "head")


def of_zoo(source: str, text: Path) -> dict[str, Any]:
    return check_head(source, str(specdec_zoo.path("target")), text, most_tokens=TOKENS, longest=256)


def test_a_head_that_is_written_right(text) -> None:
    found = of_zoo(str(specdec_zoo.path("eagle3")), text)
    assert (found["method"], found["layers"], found["window"]) == ("eagle3", [2, 7, 12], None)
    assert (found["best"], found["remedies"]) == ("", [])
    own, *others = found["readings"]
    assert own["reading"] == "as published"
    assert own["gain"] == 0.0
    assert own["first"] > found["unigram"] + 2
    assert {"layers 1, 6, 11", "layers 3, 8, 13", "carry after the norm", "window 64"} <= {
        row["reading"] for row in others
    }
    assert all(row["gain"] < 4 * row["error"] for row in others)


WRONG = {
    "shifted ids": ({"eagle_aux_hidden_state_layer_ids": [3, 8, 13]}, '"aux_layer_ids": [2, 7, 12]'),
    "another norm": ({"norm_output": True}, '"norm_output": false'),
    "a window": (
        {"sliding_window": 16, "layer_types": ["sliding_attention"]},
        '"layer_types" without "sliding_attention"',
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRONG)
def test_a_head_that_is_written_wrong(kind, text, tmp_path) -> None:
    keys, remedy = WRONG[kind]
    found = of_zoo(rewritten(tmp_path, **keys), text)
    assert len(found["remedies"]) == 1
    assert remedy in found["remedies"][0]


@pytest.mark.slow
def test_two_things_are_wrong(text, tmp_path) -> None:
    head = rewritten(tmp_path, norm_output=True, eagle_aux_hidden_state_layer_ids=[3, 8, 13])
    remedies = "; ".join(of_zoo(head, text)["remedies"])
    assert '"aux_layer_ids": [2, 7, 12]' in remedies
    assert '"norm_output": false' in remedies


@pytest.mark.slow
def test_an_eagle_1_head(text) -> None:
    found = of_zoo(str(specdec_zoo.path("eagle")), text)
    assert (found["method"], found["layers"], found["remedies"]) == ("eagle", [], [])
    assert "states before the target's norm" in {row["reading"] for row in found["readings"]}


def drawn(folder: str, count: int) -> list[int]:
    """Return a text whose tokens are drawn from a head's first drafted token, given those before."""
    target = check()
    settings = EagleSettings.from_dict(HeadCheckpoint(folder, None).config, folder, is_eagle3=True)
    head = load_eagle3(HeadCheckpoint(folder, None), target.handle, settings, is_parallel=False)
    runner = ModuleRunner(head, torch.device("cpu"), 512, is_fused=False)
    runner.allocate(2 * count)
    generator, tokens = torch.Generator().manual_seed(2), [1, 2, 3]
    while len(tokens) < count:
        _, *inputs = target.states(tokens, (1, 3, 6))
        ids = torch.tensor(tokens[1:])
        segment = Segment(row=0, num_rows=len(ids), first_slot=0, num_cached=0)
        batch = PackedBatch(ids, torch.arange(len(ids)), [segment], None, torch.tensor([len(ids) - 1]))
        with torch.inference_mode():
            logits = runner.forward(batch, head.fuse(tuple(inputs))[:-1]).logits[0]
        tokens.append(int(torch.multinomial((2.0 * logits).softmax(-1), 1, generator=generator)))
    return tokens


@pytest.mark.slow
def test_a_window_that_the_files_leave_out(tmp_path) -> None:
    """The text is drawn from the head with its window."""
    torch.manual_seed(1)
    shape = Shape()
    tensors = random_tensors(shape, seed=4)
    window = {"sliding_window": 16, "layer_types": ["sliding_attention"]}
    for name, keys in (("with", window), ("without", {})):
        write_head(tmp_path / name, shape, tensors, Layout(keys=keys))
    settings = EagleSettings.from_dict(
        HeadCheckpoint(str(tmp_path / "with"), None).config, "here", is_eagle3=True
    )
    assert window_of(settings) == 16
    tokens = drawn(str(tmp_path / "with"), 256)
    file = tmp_path / "text.jsonl"
    file.write_text(json.dumps({"token_ids": tokens}) + "\n")
    right = check_head(str(tmp_path / "with"), target_model(), file)
    wrong = check_head(str(tmp_path / "without"), target_model(), file)
    assert right["readings"][0]["first"] > wrong["readings"][0]["first"]
    assert any('"sliding_window": 16' in remedy for remedy in wrong["remedies"])


@pytest.mark.slow
def test_the_command(text, tmp_path, capsys) -> None:
    head = rewritten(tmp_path, eagle_aux_hidden_state_layer_ids=[3, 8, 13])
    options = ["--prompts", str(text), "--max-tokens", "1024", "--max-length", "64"]
    assert run(["check-head", head, *options]) == 1
    out = capsys.readouterr().out
    assert "layers 2, 7, 12" in out
    assert 'better with "aux_layer_ids": [2, 7, 12] in speculative_config' in out
    assert run(["check-head", str(specdec_zoo.path("eagle3")), *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"] == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"token_ids": [1, 2]}', "holds no text of 8 tokens"),
        ('{"answer": 3}', 'line 1: give "text", "prompt" or "token_ids"'),
        ("{broken", "line 1: not JSON"),
        ('{"text": "abc"}', "the target has no tokenizer"),
        ('{"token_ids": [1, 2, 3, 4, 5, 6, 7, 8, 99]}', "id 99 is none of the target's 61"),
    ],
)
def test_texts_that_cannot_be_used(content, message, tmp_path) -> None:
    folder, _ = make_head(tmp_path / "head", Shape())
    file = tmp_path / "text.jsonl"
    file.write_text(content)
    with pytest.raises(ConfigError, match=message):
        check_head(folder, target_model(), file)
    with pytest.raises(ConfigError, match="cannot be read"):
        check_head(folder, target_model(), tmp_path / "nothing")
