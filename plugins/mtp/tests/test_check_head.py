"""`specdec check-head` tells what multi-token-prediction layers were trained for."""

from __future__ import annotations

import argparse
import inspect
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from mtp_check.plain import PlainMtp
from mtp_check.targets import VOCAB_SIZE
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import specdec_zoo
from specdec_runtime.drafting.checking.check import check_head

Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that the zoo's target knows well enough."""
    path = tmp_path_factory.mktemp("text") / "argparse.txt"
    path.write_text(inspect.getsource(argparse)[:16000])
    return path


def of_zoo(source: Path, text: Path) -> dict[str, Any]:
    target = str(specdec_zoo.path("target"))
    return check_head(str(source), target, text, method="mtp", most_tokens=2048, longest=256)


@pytest.mark.parametrize("kind", ["llama", "ernie", "mimo"])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_likelihoods_are_those_of_the_formulas(made, tmp_path, kind, num_layers) -> None:
    target = made(kind, num_layers)
    plain = PlainMtp(target)
    tokens = torch.randint(VOCAB_SIZE, (20,), generator=torch.Generator().manual_seed(1)).tolist()
    file = tmp_path / "text.jsonl"
    file.write_text(json.dumps({"token_ids": tokens}))
    model = AutoModelForCausalLM.from_pretrained(target.folder, dtype=torch.float32)
    own = check_head(str(target.folder), model, file, method="mtp")["readings"][0]

    def mean(path_length: int) -> float:
        found = []
        for end in range(2 + path_length, len(tokens)):
            text, path = tokens[: end - path_length], tokens[end - path_length : end + 1]
            logits = plain.drafted_logits(text, path)[path_length]
            found.append(float(logits.log_softmax(-1)[tokens[end]]))
        return sum(found) / len(found)

    assert own["first"] == pytest.approx(mean(0), abs=1e-5)
    assert own["second"] == pytest.approx(mean(1), abs=1e-5)


def test_layers_that_are_written_right(text) -> None:
    found = of_zoo(specdec_zoo.path("mtp"), text)
    assert (found["method"], found["dialect"], found["num_stages"]) == ("mtp", "DeepSeek", 1)
    assert (found["best"], found["remedies"]) == ("", [])
    assert found["readings"][0]["first"] > found["unigram"] + 1
    assert {row["reading"] for row in found["readings"]} == {
        "as published", "states before the target's norm", "carry before the norm", "state first in the joined vector",
    }  # fmt: skip


def swapped(tensors: Tensors) -> None:
    """Write the state's half of the projection first."""
    (name,) = (name for name in tensors if name.endswith("eh_proj.weight"))
    embedded, state = tensors[name].chunk(2, -1)
    tensors[name] = torch.cat((state, embedded), -1).contiguous()


def edited(folder: Path, change: Callable[[Tensors], None]) -> Path:
    """Save the zoo's layer with other weights."""
    shutil.copytree(specdec_zoo.path("mtp"), folder)
    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)
    return folder


def test_the_other_order(text: Path, tmp_path: Path) -> None:
    found = of_zoo(edited(tmp_path / "layers", swapped), text)
    assert found["best"] == "state first in the joined vector"
    assert len(found["remedies"]) == 1


def test_states_before_the_norm(text: Path, tmp_path: Path) -> None:
    """The target's final norm weights some numbers more than others, which the layer's own norm of states does in its place."""
    model = AutoModelForCausalLM.from_pretrained(specdec_zoo.path("target"), dtype=torch.float32).eval()
    norm = model.model.norm.weight.detach().clone()
    factors = torch.exp(0.7 * torch.randn(norm.shape, generator=torch.Generator().manual_seed(1)))
    with torch.no_grad():
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight / factors)
        model.model.norm.weight.mul_(factors)

    def change(tensors: Tensors) -> None:
        for name, tensor in tensors.items():
            factor = norm if name.endswith("hnorm.weight") else factors
            if name.endswith(("hnorm.weight", "shared_head.norm.weight")):
                tensors[name] = (tensor.float() * factor).to(tensor.dtype)

    tokenizer = AutoTokenizer.from_pretrained(specdec_zoo.path("target"))
    file = tmp_path / "text.jsonl"
    file.write_text(json.dumps({"token_ids": tokenizer(text.read_text())["input_ids"][:1024]}))
    found = check_head(str(edited(tmp_path / "layers", change)), model, file, method="mtp", longest=256)
    assert "states before the target's norm" in found["best"]
