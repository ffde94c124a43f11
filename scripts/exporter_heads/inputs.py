"""What all heads read: a target's embedding, texts, its states along them, and which drafts are wanted where."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB, HIDDEN, NUM_LAYERS = 32, 8, 8
MASK_ID = 28
DRAFT_IDS = tuple(token for token in range(VOCAB) if token % 8 in (0, 3, 5))
"""Ids that heads with a reduced vocabulary draft."""
LAYER: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 12,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "bos_token_id": None,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}
"""Keys of the target's layers, and of most heads'."""


def layer_keys(**others: Any) -> dict[str, Any]:
    """Return `LAYER` with other keys: a copy, since configurations write defaults of their family into its parts."""
    return copy.deepcopy(LAYER) | others


def drawn(model: torch.nn.Module, seed: int, *, without: tuple[str, ...] = ()) -> None:
    """Draw all weights of a model, rounded to bfloat16, large enough that every part counts.

    Args:
        model: the model.
        seed: seed of the weights.
        without: beginnings of the names of parameters that stay.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.startswith(without):
                continue
            if parameter.ndim != 1:
                noise = noise * (0.7 if "embed" in name else 1.3 * parameter.shape[-1] ** -0.5)
            elif name.endswith("bias"):
                noise = 0.2 * noise
            else:
                noise = 1 + 0.2 * noise
            parameter.copy_(noise.bfloat16())


def target(folder: Path) -> LlamaForCausalLM:
    """Return the target, after writing it to a folder, where exporters look for it."""
    torch.manual_seed(0)
    model: LlamaForCausalLM = LlamaForCausalLM(LlamaConfig(**layer_keys(num_hidden_layers=NUM_LAYERS))).eval()
    drawn(model, 3)
    model.save_pretrained(folder)
    return model


class Row(NamedTuple):
    """One row of logits: what follows the first `length` tokens of a text and a drafted path."""

    name: str
    length: int
    path: tuple[int, ...]


class Inputs:
    """The inputs as `tests/exporters.tar.xz` has them.

    Args:
        folder: the folder of the fixtures.
    """

    def __init__(self, folder: Path) -> None:
        plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        self.texts: dict[str, list[int]] = plan["texts"]
        self.rows = [Row(name, length, tuple(path)) for name, length, path in plan["rows"]]
        self.states: dict[str, Tensor] = {}
        """For each text `[10, n, H]`: the inputs of the eight layers, the last one's output, and the same after the norm."""
        if (folder / "inputs.safetensors").is_file():
            tensors = load_file(folder / "inputs.safetensors")
            self.states = {name: tensors[name] for name in self.texts}

    def of_layers(self, row: Row, ids: tuple[int, ...]) -> list[Tensor]:
        """Return the inputs `[length, H]` of layers of the target along a row's text; -1 for the state after the last norm."""
        return [self.states[row.name][layer][: row.length] for layer in ids]


@torch.no_grad()
def write_inputs(folder: Path, model: LlamaForCausalLM) -> None:
    """Write `inputs.safetensors`: embedding, output projection, and the states of each text."""
    tensors = {
        "embedding": model.model.embed_tokens.weight.detach().bfloat16(),
        "lm_head": model.lm_head.weight.detach().bfloat16(),
    }
    last: list[Tensor] = []
    model.model.norm.register_forward_pre_hook(lambda _, arguments: last.append(arguments[0][0]))
    for name, tokens in Inputs(folder).texts.items():
        output = model.model(input_ids=torch.tensor([tokens]), output_hidden_states=True, use_cache=False)
        inputs = [state[0] for state in output.hidden_states[:NUM_LAYERS]]
        tensors[name] = torch.stack([*inputs, last.pop(), output.last_hidden_state[0]]).float().contiguous()
    save_file(tensors, folder / "inputs.safetensors")
