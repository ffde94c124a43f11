"""Adapters that PEFT makes and saves, and the tokens of PEFT's own models."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

import specdec_zoo

CONFIGS: dict[str, dict[str, Any]] = {
    "attention": {"r": 4, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"]},
    "all": {
        "r": 8, "lora_alpha": 12, "target_modules": "all-linear", "use_rslora": True,
        "rank_pattern": {"down_proj": 3}, "alpha_pattern": {"layers.0.mlp.up_proj": 16},
    },
    "head": {"r": 2, "lora_alpha": 12, "target_modules": ["o_proj", "lm_head"]},
}  # fmt: skip
"""By name, what `LoraConfig` is given: all modules and few, other ranks and scalings for some, the output projection."""


@contextmanager
def quiet_peft() -> Iterator[Any]:
    """Yield PEFT, whose notices are no errors here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import peft

        yield peft


def target() -> PreTrainedModel:
    """Return the zoo's target, in float32."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        specdec_zoo.path("target"), dtype=torch.float32
    )
    return model


def make_adapter(model: PreTrainedModel, folder: Path, seed: int = 0, **config: Any) -> Path:
    """Write an adapter for a model, which it spoils, with products that change its texts; returns the folder."""
    with quiet_peft() as peft, torch.random.fork_rng():
        torch.manual_seed(seed)
        made = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **config))
        for name, tensor in made.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(tensor, std=0.2 * tensor.shape[1] ** -0.5)
        made.save_pretrained(folder)
    return folder


def make_adapters(folder: Path) -> dict[str, Path]:
    """Write the adapters of `CONFIGS` for the zoo's target; returns their folders by name."""
    return {
        name: make_adapter(target(), folder / name, seed, **config)
        for seed, (name, config) in enumerate(CONFIGS.items())
    }


def adapted_by_peft(folder: Path | None, model: PreTrainedModel | None = None) -> Any:
    """Return PEFT's model of an adapter in a folder; the model itself without one."""
    base = model or target()
    with quiet_peft() as peft:
        return (base if folder is None else peft.PeftModel.from_pretrained(base, folder)).eval()
