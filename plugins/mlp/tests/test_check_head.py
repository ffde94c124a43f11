"""`specdec check-head` tells what heads on the target's last state were trained for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F
from transformers import AutoModelForCausalLM

import specdec_zoo
from specdec_plugin_mlp import (
    Medusa,
    MedusaLayout,
    MLPSpeculator,
    MLPSpeculatorLayout,
    load_mlp_speculator,
    save_mlp_speculator,
)
from specdec_runtime.drafting import HeadCheckpoint
from specdec_runtime.drafting.checking.check import check_head

MEDUSA = {"model_type": "medusa", "hidden_size": 256, "vocab_size": 4096, "num_hidden_layers": 1}
NUM_TOKENS = 2048


def of_zoo(source: Path, text: Path) -> dict[str, Any]:
    target = str(specdec_zoo.path("target"))
    return check_head(str(source), target, text, most_tokens=NUM_TOKENS, longest=256)


def written(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """Write Medusa heads."""
    folder.mkdir()
    count = sum(name.startswith("lm_heads.") for name in tensors)
    (folder / "config.json").write_text(json.dumps(MEDUSA | {"num_heads": count}))
    save_file(tensors, folder / "model.safetensors")
    return folder


@dataclass(frozen=True)
class Answers:
    """Some texts, and the zoo's target's states along them."""

    file: Path
    after: torch.Tensor
    """`[T, H]` those of rows after which three tokens follow that heads predict; after the final norm."""
    before: torch.Tensor
    """The same before that norm."""
    chosen: torch.Tensor
    """`[T]` the tokens that the states chose."""
    following: torch.Tensor
    """`[T, 3]` these tokens."""

    def learnt(self, states: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return heads that know the texts by heart, nearly, from some states."""
        torch.manual_seed(0)
        heads = Medusa(MedusaLayout(**MEDUSA, num_heads=3))
        fitted(heads, self.following, lambda: heads(states))
        return heads.state_dict()


def fitted(heads: torch.nn.Module, following: torch.Tensor, logits: Callable[[], torch.Tensor]) -> None:
    """Train heads, given what makes their logits `[T, 3, V]`."""
    optimiser = torch.optim.Adam(heads.parameters(), lr=1e-2)
    for _ in range(25):
        optimiser.zero_grad()
        F.cross_entropy(logits().flatten(0, 1), following.flatten()).backward()
        optimiser.step()


@pytest.fixture(scope="module")
def answers(texts, tmp_path_factory) -> Answers:
    file = tmp_path_factory.mktemp("medusa") / "answers.jsonl"
    known = [[*p[-4:], *a] for p, a in zip(texts.prompts, texts.answers, strict=True)]
    file.write_text("".join(json.dumps({"token_ids": tokens}) + "\n" for tokens in known))
    model = AutoModelForCausalLM.from_pretrained(specdec_zoo.path("target"), dtype=torch.float32).eval()
    before: list[torch.Tensor] = []
    model.model.norm.register_forward_pre_hook(lambda _, arguments: before.append(arguments[0][0, :-4]))
    with torch.no_grad():
        after = [model.model(torch.tensor([tokens])).last_hidden_state[0, :-4] for tokens in known]
    following = [torch.tensor(tokens).unfold(0, 3, 1)[2:] for tokens in known]
    chosen = [torch.tensor(tokens)[1:-3] for tokens in known]
    return Answers(file, torch.cat(after), torch.cat(before), torch.cat(chosen), torch.cat(following))


@pytest.fixture(scope="module")
def learnt_heads(answers) -> dict[str, torch.Tensor]:
    """Heads that know the texts from the states after the final norm; training takes seconds."""
    return answers.learnt(answers.after)


@pytest.fixture(scope="module")
def speculator(answers, tmp_path_factory) -> Path:
    """An MLP speculator that knows the texts, nearly."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 4096, "emb_dim": 256, "inner_dim": 48, "n_predict": 3}
    heads = MLPSpeculator(MLPSpeculatorLayout(**sizes, scale_input=True))
    before = torch.cat((answers.chosen[:, None], answers.following[:, :-1]), 1)
    fitted(heads, answers.following, lambda: heads(answers.after, before))
    folder = tmp_path_factory.mktemp("speculator")
    save_mlp_speculator(heads, folder)
    return folder


@pytest.mark.slow
def test_likelihoods_are_those_of_the_heads(speculator, tmp_path) -> None:
    heads = load_mlp_speculator(HeadCheckpoint(str(speculator)), dtype=torch.float32)
    target = AutoModelForCausalLM.from_pretrained(specdec_zoo.path("target"), dtype=torch.float32).eval()
    tokens = torch.randint(4096, (24,), generator=torch.Generator().manual_seed(1)).tolist()
    file = tmp_path / "text.jsonl"
    file.write_text(json.dumps({"token_ids": tokens}))
    own = check_head(str(speculator), target, file)["readings"][0]
    with torch.no_grad():
        states = target.model(torch.tensor([tokens])).last_hidden_state[0]
    first, second = [], []
    for row in range(len(tokens) - 2):
        given = torch.tensor([*tokens[row + 1 : row + 4], 0, 0][:3])
        logs = heads(states[row], given).double().log_softmax(-1)
        first.append(float(logs[0, tokens[row + 2]]))
        if row + 3 < len(tokens):
            second.append(float(logs[1, tokens[row + 3]]))
    assert own["first"] == pytest.approx(sum(first) / len(first), abs=1e-4)
    assert own["second"] == pytest.approx(sum(second) / len(second), abs=1e-4)


@pytest.mark.slow
def test_speculators_that_are_written_right_or_wrong(speculator, answers, tmp_path) -> None:
    found = of_zoo(speculator, answers.file)
    assert (found["method"], found["best"], found["remedies"]) == ("mlp_speculator", "", [])
    folder = shutil.copytree(speculator, tmp_path / "heads")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"scale_input": False}))
    assert of_zoo(folder, answers.file)["remedies"] == ['"scale_input": true in its config.json']


@pytest.mark.slow
def test_medusa_heads_that_are_written_right(answers, learnt_heads, tmp_path) -> None:
    found = of_zoo(written(tmp_path / "heads", learnt_heads), answers.file)
    assert (found["method"], found["dialect"], found["num_heads"]) == ("medusa", "vLLM's", 3)
    assert (found["best"], found["remedies"]) == ("", [])
    assert {row["reading"] for row in found["readings"]} == {
        "as published", "states before the target's norm", "heads from the second on",
    }  # fmt: skip


@pytest.mark.slow
def test_a_first_head_for_the_token_that_the_target_chooses(answers, learnt_heads, tmp_path) -> None:
    moved = {}
    for name, tensor in learnt_heads.items():
        part, index, *rest = name.split(".")
        moved[".".join((part, str(int(index) + 1), *rest))] = tensor
    model = AutoModelForCausalLM.from_pretrained(specdec_zoo.path("target"), dtype=torch.float32)
    moved["blocks.0.layers.0.weight"] = torch.zeros(256, 256)
    moved["lm_heads.0.weight"] = model.get_output_embeddings().weight.detach().clone()
    found = of_zoo(written(tmp_path / "moved", moved), answers.file)
    assert found["best"] == "heads from the second on"


@pytest.mark.slow
def test_medusa_heads_on_states_before_the_norm(answers, tmp_path) -> None:
    """The target's final norm changes signs, so that the states on its two sides differ."""
    heads = written(tmp_path / "before", answers.learnt(answers.before))
    model = AutoModelForCausalLM.from_pretrained(specdec_zoo.path("target"), dtype=torch.float32).eval()
    factors = torch.randn(256, generator=torch.Generator().manual_seed(1)).sign()
    with torch.no_grad():
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight / factors)
        model.model.norm.weight.mul_(factors)
    found = check_head(str(heads), model, answers.file)
    assert found["best"] == "states before the target's norm"
