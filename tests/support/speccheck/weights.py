"""New weights for the zoo's target, and what engines say with them."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import Any

import torch
from safetensors.torch import save_file

import specdec_zoo
from specdec import LLM, SamplingParams

METHODS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "ngram": {"method": "ngram", "num_speculative_tokens": 4},
    "suffix": {"method": "suffix", "num_speculative_tokens": 4},
    "eagle3": {"method": "eagle3", "model": "zoo", "num_speculative_tokens": 4},
    "self": {"method": "self", "num_speculative_tokens": 3},
    "draft_model": {"method": "draft_model", "model": "zoo", "num_speculative_tokens": 4},
    "target as draft": {
        "method": "draft_model", "model": str(specdec_zoo.path("target")), "num_speculative_tokens": 4,
    },
    "auto": {"method": "auto"},
}  # fmt: skip
PROMPTS = (
    "def main(argv):\n    parser = ",
    "class Node:\n    def __init__(self, value):\n        self.value = value\n\n    def ",
    "import os\n\nfor name in os.listdir('.'):\n    print(name)\n\nfor name in ",
)
PARAMS = [
    SamplingParams(temperature=temperature, seed=3, max_tokens=16, ignore_eos=True)
    for temperature in (0.0, 0.8, 0.8)
]
OPTIONS: dict[str, Any] = {"dtype": "float32", "max_model_len": 256, "block_size": 4}
Weights = dict[str, torch.Tensor]


def changed(weights: Weights, seed: int = 0) -> Weights:
    """Return weights that give other texts; they are not numbers of 16 bits, as the zoo's are."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        tied = {name for name in weights if name.startswith("lm_head")}
        new = {k: v + 0.3 * v.std() * torch.randn_like(v) for k, v in weights.items() if k not in tied}
    return new | dict.fromkeys(tied, new["model.embed_tokens.weight"])


def write(weights: Weights, folder: Path) -> Path:
    """Write the zoo's target with these weights to a folder, which is returned."""
    copytree(specdec_zoo.path("target"), folder)
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    save_file({k: v for k, v in weights.items() if k != "lm_head.weight"}, folder / "model.safetensors")
    return folder


def tokens(llm: LLM, **how: Any) -> list[list[int]]:
    """Return the tokens of the answers to `PROMPTS`."""
    return [output.outputs[0].token_ids for output in llm.generate(PROMPTS, PARAMS, **how)]
