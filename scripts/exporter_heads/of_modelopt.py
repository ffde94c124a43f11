"""EAGLE-3, Medusa and DFlash heads of nvidia-modelopt 0.47.0: `convert` adds them to a target, its exporter writes them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from exporter_heads import dflash, stubs
from exporter_heads.inputs import DRAFT_IDS, LAYER, Inputs, Row, drawn, layer_keys
from exporter_heads.references import Exported, ExportedChain
from exporter_heads.writing import Head

_SIZES = ("num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size")
_HEADS: dict[str, dict[str, Any]] = {
    "eagle3": {},
    "eagle3_other_layers": {"eagle_aux_hidden_state_layer_ids": [0, 2, 6]},
    "eagle3_yarn": {},
}


class _Once(nn.Module):
    """A norm that is the identity in every other call, from the first on.

    The decoder layer applies `layers[0].input_layernorm` to the state, which 0.47.0 leaves in place, before the attention's
    hook applies it to the embeddings. Its documentation, vLLM, SGLang and TensorRT-LLM norm the embeddings alone.
    """

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.norm, self.weight, self.is_within = norm, norm.weight, False

    def forward(self, states: Tensor) -> Tensor:
        self.is_within = not self.is_within
        normed: Tensor = states if self.is_within else self.norm(states)
        return normed


class ModelOptHead(ExportedChain):
    """The `EagleModule` of a converted target."""

    def __init__(self, model: Any, layers: tuple[int, ...]) -> None:
        super().__init__(layers)
        self.model, self.module = model, model.eagle_module
        self.lm_head = getattr(self.module, "lm_head", None) or model._base_model_lm_head

    def feature(self, states: list[Tensor]) -> Tensor:
        """Return the fused states."""
        fused: Tensor = self.module.fc(torch.cat(states, -1))
        return fused

    def run(self, ids: list[int], features: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Run its layers over rows."""
        count = len(ids)
        mask = torch.full((1, 1, count, count), torch.finfo(torch.float32).min).triu(1)
        embedded = self.model._base_model_embeddings(torch.tensor(ids))
        normed, states, _ = self.module(features[None], embedded[None], mask, torch.arange(count)[None])
        return self.lm_head(normed)[0], states[0]


class ModelOptMedusa(Exported):
    """The `medusa_heads` of a converted target."""

    def __init__(self, model: Any) -> None:
        super().__init__((-1,))
        self.heads = model.medusa_heads

    @torch.no_grad()
    def logits(self, row: Row, inputs: Inputs) -> Tensor:
        """See `Exported.logits`: head i reads the state that chose the last token, and predicts the token i + 1 behind that."""
        (states,) = inputs.of_layers(row, self.layers)
        logits: Tensor = self.heads[len(row.path)](states[row.length - 2])
        return logits.float()


def heads(target: Path) -> Iterator[Head]:
    """Yield all heads; `target` is the folder of theirs."""
    stubs.use("modelopt")
    yield _medusa()
    for name, architecture in _HEADS.items():
        yield _eagle3(name, target, architecture, is_extended=name.endswith("yarn"))
    yield from dflash.of_modelopt(target)


def _eagle3(name: str, target: Path, architecture: dict[str, Any], *, is_extended: bool) -> Head:
    """Make a head; `is_extended`: with the position scaling that 0.47.0 writes for longer contexts than it trains."""
    speculative = import_module("modelopt.torch.speculative")
    settings = copy.deepcopy(import_module("modelopt.torch.speculative.config").EAGLE3_DEFAULT_CFG)
    settings["config"]["eagle_architecture_config"].update(
        {key: LAYER[key] for key in _SIZES}
        | {"torch_dtype": "bfloat16", "draft_vocab_size": len(DRAFT_IDS)}
        | architecture
    )
    model: Any = LlamaForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    speculative.convert(model, [(settings["algorithm"], settings["config"])])
    module = model.eagle_module
    drawn(module, 7)
    if hasattr(module, "d2t"):
        module.d2t.copy_(torch.tensor(DRAFT_IDS) - torch.arange(len(DRAFT_IDS)))
    rotated = copy.deepcopy(model.eagle_config)
    if is_extended:
        rotated.rope_parameters = rotated.rope_parameters | model.eagle_export_rope_scaling
    else:
        model.eagle_export_rope_scaling = {}
    module.rotary_emb = LlamaRotaryEmbedding(config=rotated)
    norm = module.layers[0].input_layernorm
    outputs = model.eagle_config.eagle_aux_hidden_state_layer_ids
    read = ModelOptHead(model.eval(), tuple(layer + 1 for layer in outputs))
    module.layers[0].input_layernorm = _Once(norm)

    def save(folder: Path) -> None:
        module.layers[0].input_layernorm = norm
        del module.rotary_emb
        model.bfloat16().get_exporter().export(folder)

    return Head(f"modelopt/{name}", "eagle3", read, save)


def _medusa() -> Head:
    """Make Medusa heads, which are saved with their target: one of two layers here."""
    torch.manual_seed(1)
    model: Any = LlamaForCausalLM(LlamaConfig(**layer_keys(num_hidden_layers=2))).float().eval()
    config = {"medusa_num_heads": 3, "medusa_num_layers": 1}
    import_module("modelopt.torch.speculative").convert(model, [("medusa", config)])
    drawn(model, 7)
    read = ModelOptMedusa(model)

    def save(folder: Path) -> None:
        model.bfloat16().save_pretrained(folder)

    return Head("modelopt/medusa", "medusa", read, save)
