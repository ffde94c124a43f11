"""Heads on disk: random ones of any shape, and ones that have learnt what the zoo's target says next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM

import specdec_zoo
from specdec import LLM, SamplingParams
from specdec_plugin_mlp import MLPSpeculator, MLPSpeculatorLayout, save_mlp_speculator

NUM_HEADS = 3
NUM_KNOWN = 4
"""Prompts of six whose answers are learnt."""


@dataclass(frozen=True)
class Texts:
    """What the zoo's target says greedily, and its states."""

    prompts: list[list[int]]
    answers: list[list[int]]
    states: torch.Tensor
    """`[T, H]` the state that chose the first of each row of `windows`."""
    windows: torch.Tensor
    """`[T, n + 1]` tokens, one after another, of the answers that heads learn: those to the first four prompts."""


@pytest.fixture(scope="session")
def texts() -> Texts:
    llm = LLM(model="zoo", dtype="float32")
    asked = [prompt["prompt"] for prompt in specdec_zoo.prompts(6)]
    outputs = llm.generate(asked, SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True))
    prompts = [list(output.prompt_token_ids) for output in outputs]
    answers = [list(output.outputs[0].token_ids) for output in outputs]
    model = AutoModelForCausalLM.from_pretrained(specdec_zoo.path("target"), dtype=torch.float32).eval()
    states, windows = [], []
    for prompt, answer in list(zip(prompts, answers, strict=True))[:NUM_KNOWN]:
        with torch.no_grad():
            hidden = model.model(torch.tensor([prompt + answer])).last_hidden_state[0]
        for start in range(len(answer) - NUM_HEADS):
            states.append(hidden[len(prompt) + start - 1])
            windows.append(torch.tensor(answer[start : start + NUM_HEADS + 1]))
    return Texts(prompts, answers, torch.stack(states), torch.stack(windows))


@pytest.fixture(scope="session")
def fit(texts: Texts) -> Callable[[torch.nn.Module, Callable[[], torch.Tensor]], list[float]]:
    """Return a function that trains heads on the texts, given what makes their logits `[T, n, V]`; returns the losses."""

    def train(heads: torch.nn.Module, logits: Callable[[], torch.Tensor]) -> list[float]:
        optimiser = torch.optim.Adam(heads.parameters(), lr=1e-2)
        losses = []
        for _ in range(25):
            optimiser.zero_grad()
            loss = F.cross_entropy(logits().flatten(0, 1), texts.windows[:, 1:].flatten())
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        return losses

    return train


@pytest.fixture(scope="session")
def learnt(texts: Texts, fit: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """Heads of the zoo's target that know its answers by heart, nearly; and the losses on the way."""
    torch.manual_seed(0)
    layout = MLPSpeculatorLayout(
        vocab_size=4096, emb_dim=256, inner_dim=48, n_predict=NUM_HEADS, scale_input=True
    )
    heads = MLPSpeculator(layout)
    losses = fit(heads, lambda: heads(texts.states, texts.windows[:, :-1]))
    folder = tmp_path_factory.mktemp("learnt")
    save_mlp_speculator(heads, folder)
    return folder, losses


@pytest.fixture
def make_heads(tmp_path: Path) -> Callable[..., Path]:
    """Return a maker of random MLP speculators for the zoo's target; keys of the layout may be changed."""

    def make(seed: int = 1, **keys: object) -> Path:
        torch.manual_seed(seed)
        sizes = {"vocab_size": 4096, "emb_dim": 256, "inner_dim": 24, "n_predict": 3}
        folder = tmp_path / f"heads-{seed}"
        save_mlp_speculator(randomised(MLPSpeculator(MLPSpeculatorLayout(**{**sizes, **keys}))), folder)
        return folder

    return make


def randomised(heads: MLPSpeculator) -> MLPSpeculator:
    """Return heads whose norms scale and shift as well."""
    with torch.no_grad():
        for name, parameter in heads.named_parameters():
            if name.startswith("ln."):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return heads
