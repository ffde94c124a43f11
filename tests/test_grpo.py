"""The example of GRPO: its rollouts follow the policy, and its rewards are the same with and without drafts."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from packages import ROOT
from transformers import AutoModelForCausalLM

import specdec_zoo
from specdec import LLM, SamplingParams

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples/grpo.py"
CONFIGS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "suffix": {"method": "suffix", "adaptive": False},
    "eagle3": {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 3, "adaptive": False},
}


def test_rollouts_follow_a_policy_that_is_trained() -> None:
    """Steps of REINFORCE in place of TRL's: the policy is what the engines sample from, and it learns."""
    example = runpy.run_path(str(EXAMPLE))
    policy = AutoModelForCausalLM.from_pretrained(specdec_zoo.path("target"), dtype=torch.float32)
    engines = {
        name: LLM("zoo", dtype="float32", max_model_len=256, speculative_config=config)
        for name, config in CONFIGS.items()
    }
    params = SamplingParams(temperature=1.0, seed=0, max_tokens=32, ignore_eos=True, logprobs=0)
    rollouts = example["Rollouts"](engines, params)
    trainer = SimpleNamespace(model=policy, accelerator=SimpleNamespace(unwrap_model=lambda model: model))
    optimizer, losses = torch.optim.AdamW(policy.parameters(), lr=2e-5), []
    for _ in range(3):
        found = rollouts([example["PROMPTS"][0]] * 4, trainer)
        rewards = torch.tensor([float(len(set(ids))) for ids in found["completion_ids"]])
        ids = torch.tensor([p + c for p, c in zip(found["prompt_ids"], found["completion_ids"], strict=True)])
        logs = policy(ids).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0][:, -32:]
        # The engines' log probabilities are the policy's: they sampled from its newest weights.
        assert torch.allclose(logs, torch.tensor(found["logprobs"]), atol=1e-3)
        loss = -((rewards - rewards.mean()) * logs.sum(1)).mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert all(any(steps) for name, steps in rollouts.num_accepted.items() if name != "plain")
    again = example["Rollouts"]({"untrained": LLM("zoo", dtype="float32", max_model_len=256)}, params)
    untrained = SimpleNamespace(
        model=AutoModelForCausalLM.from_pretrained(specdec_zoo.path("target"), dtype=torch.float32),
        accelerator=trainer.accelerator,
    )
    for _ in range(3):
        again([example["PROMPTS"][0]] * 4, untrained)
    assert again.completions[0] == rollouts.completions[0]
    assert again.completions[2] != rollouts.completions[2]


def test_completions_that_differ_are_shown() -> None:
    example = runpy.run_path(str(EXAMPLE))
    engines = {
        name: LLM("zoo", dtype="float32", max_model_len=256, speculative_config=CONFIGS["suffix"])
        for name in ("plain", "stale")
    }
    engines["stale"].update_weights = lambda weights: None  # type: ignore[method-assign]
    policy = AutoModelForCausalLM.from_pretrained(specdec_zoo.path("target"), dtype=torch.float32)
    with torch.no_grad():
        policy.model.norm.weight.mul_(0.5)
    trainer = SimpleNamespace(model=policy, accelerator=SimpleNamespace(unwrap_model=lambda model: model))
    params = SamplingParams(temperature=1.0, seed=0, max_tokens=16, ignore_eos=True, logprobs=0)
    one = r"\d+ \(log probability -\d+\.\d{6}\)"
    count = r"\{'specdec:proposer_errors': 0, 'specdec:unfused_models': 0\}"
    with pytest.raises(
        RuntimeError,
        match=rf"step 0: stale and plain wrote different completions: completion \d, token \d+: plain {one}, stale {one}; "
        rf"plain {count}, stale {count}$",
    ):
        example["Rollouts"](engines, params)([example["PROMPTS"][0]] * 4, trainer)


@pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not a dependency: pip install trl")
def test_rewards_of_trl_do_not_depend_on_drafts(tmp_path: Path) -> None:
    def rewards(*configs: dict[str, Any] | None) -> list[float]:
        options = ["--steps", "3", "--generations", "4", "--tokens", "32", "--folder", str(tmp_path)]
        for config in configs:
            options += ["--speculative-config", json.dumps(config)]
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), *options], capture_output=True, text=True, env=os.environ
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        return list(found["rewards"])

    plain = rewards(None)
    assert any(plain)
    assert rewards(*reversed(CONFIGS.values())) == plain
