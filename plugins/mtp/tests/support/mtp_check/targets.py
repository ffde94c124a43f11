"""Tiny random targets of every family, with multi-token-prediction layers under their published names."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3DecoderLayer
from transformers.models.ernie4_5_moe.modeling_ernie4_5_moe import Ernie4_5_MoeDecoderLayer
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeDecoderLayer
from transformers.models.glm4_moe_lite.modeling_glm4_moe_lite import Glm4MoeLiteDecoderLayer
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextDecoderLayer

VOCAB_SIZE, HIDDEN, NUM_LAYERS = 97, 32, 2
_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE, "hidden_size": HIDDEN, "intermediate_size": 48, "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": None,
    "eos_token_id": None, "pad_token_id": None, "tie_word_embeddings": False, "rms_norm_eps": 1e-5,
}  # fmt: skip
_MOE = {"moe_intermediate_size": 16, "num_experts_per_tok": 2, "norm_topk_prob": True}
_GROUPED = _MOE | {
    "n_routed_experts": 4,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}
_LATENT = {
    "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}  # fmt: skip
_FAMILIES: dict[str, tuple[str, dict[str, Any], type[nn.Module]]] = {
    "llama": ("llama", {}, LlamaDecoderLayer),
    "deepseek_v3": (
        "deepseek_v3",
        _GROUPED | _LATENT,
        DeepseekV3DecoderLayer,
    ),
    "glm4_moe_lite": (
        "glm4_moe_lite",
        _GROUPED | _LATENT,
        Glm4MoeLiteDecoderLayer,
    ),
    "glm4_moe": ("glm4_moe", _GROUPED | {"head_dim": 8, "use_qk_norm": True}, Glm4MoeDecoderLayer),
    "mimo": ("qwen2", {}, Qwen2DecoderLayer),
    "ernie": (
        "ernie4_5_moe",
        {"moe_intermediate_size": 16, "moe_k": 2, "moe_num_experts": 4, "moe_num_shared_experts": 1, "head_dim": 8},
        Ernie4_5_MoeDecoderLayer,
    ),
    "qwen3_next": (
        "qwen3_next",
        _MOE | {"head_dim": 16, "num_experts": 4, "shared_expert_intermediate_size": 16,
                "layer_types": ["full_attention", "linear_attention"]},
        Qwen3NextDecoderLayer,
    ),
    "qwen3_5": (
        "qwen3_5_text", {"head_dim": 16, "layer_types": ["full_attention", "linear_attention"]}, Qwen3_5DecoderLayer
    ),
}  # fmt: skip
_AROUND = {
    "deepseek": {"join": "model.layers.{n}.eh_proj", "enorm": "model.layers.{n}.enorm", "hnorm": "model.layers.{n}.hnorm",
                 "norm": "model.layers.{n}.shared_head.norm", "block": "model.layers.{n}."},
    "mimo": {"join": "model.mtp_layers.{i}.input_proj", "enorm": "model.mtp_layers.{i}.token_layernorm",
             "hnorm": "model.mtp_layers.{i}.hidden_layernorm", "norm": "model.mtp_layers.{i}.final_layernorm",
             "block": "model.mtp_layers.{i}."},
    "ernie": {"join": "model.mtp_linear_proj.{i}", "enorm": "model.mtp_emb_norm.{i}", "hnorm": "model.mtp_hidden_norm.{i}",
              "norm": "model.norm", "block": "model.mtp_block.{i}."},
    "qwen3_next": {"join": "mtp.fc", "enorm": "mtp.pre_fc_norm_embedding", "hnorm": "mtp.pre_fc_norm_hidden",
                   "norm": "mtp.norm", "block": "mtp.layers.{i}."},
}  # fmt: skip
_KEYS = {"deepseek": "num_nextn_predict_layers", "qwen3_next": "mtp_num_hidden_layers"}


@dataclass(frozen=True)
class MadeTarget:
    """A target on disk, and what its checkpoint holds."""

    kind: str
    folder: Path
    config: PretrainedConfig
    tensors: dict[str, torch.Tensor]
    blocks: list[nn.Module]
    """The decoder layers of the head, made by `transformers` alone, as an oracle of what they compute."""

    def name(self, part: str, layer: int) -> str:
        """Return what a part is called in the checkpoint."""
        return _AROUND[layout_of(self.kind)][part].format(i=layer, n=NUM_LAYERS + layer)

    def weight(self, part: str, layer: int) -> torch.Tensor:
        """Return a weight of a part around the decoder layer."""
        return self.tensors[self.name(part, layer) + ".weight"]


def layout_of(kind: str) -> str:
    """Return whose names a family uses."""
    if kind in ("llama", "deepseek_v3", "glm4_moe", "glm4_moe_lite"):
        return "deepseek"
    return "qwen3_next" if kind.startswith("qwen3") else kind


def config_of(kind: str) -> PretrainedConfig:
    """Return the configuration of a tiny target."""
    model_type, keys, _ = _FAMILIES[kind]
    return AutoConfig.for_model(model_type, **(_COMMON | keys))


def make_target(kind: str, num_layers: int, folder: Path) -> MadeTarget:
    """Write a target with `num_layers` multi-token-prediction layers."""
    torch.manual_seed(5)
    config = config_of(kind)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    scramble(model, is_gemma_norm=kind.startswith("qwen3"))
    model.save_pretrained(folder)
    own = copy.deepcopy(config)
    own._attn_implementation = "eager"
    # The last layer of the target is a mixture of experts where the family has these; in ERNIE the first is dense.
    index = 0 if kind in ("ernie", "qwen3_next", "qwen3_5") else NUM_LAYERS - 1
    blocks = [_FAMILIES[kind][2](own, index).eval().requires_grad_(False) for _ in range(num_layers)]
    tensors: dict[str, torch.Tensor] = {}
    names = _AROUND[layout_of(kind)]
    for layer, block in enumerate(blocks):
        scramble(block, is_gemma_norm=kind.startswith("qwen3"))
        prefix = names["block"].format(i=layer, n=NUM_LAYERS + layer)
        tensors |= {prefix + name: weight for name, weight in published(block).items()}
        for part in ("enorm", "hnorm", "norm"):
            name = names[part].format(i=layer, n=NUM_LAYERS + layer) + ".weight"
            if name != "model.norm.weight":
                around = 0.3 * torch.randn(HIDDEN)
                tensors[name] = around if kind.startswith("qwen3") else 1.0 + around
        name = names["join"].format(i=layer, n=NUM_LAYERS + layer) + ".weight"
        tensors[name] = torch.randn(HIDDEN, 2 * HIDDEN) * HIDDEN**-0.5
    file = folder / "model.safetensors"
    held = {**load_file(file), **{name: weight.contiguous() for name, weight in tensors.items()}}
    save_file(held, file, metadata={"format": "pt"})
    rewrite_config(folder, {_KEYS.get(layout_of(kind), "num_nextn_predict_layers"): num_layers})
    return MadeTarget(kind, folder, config, held, blocks)


def rewrite_config(folder: Path, keys: dict[str, Any]) -> None:
    """Set keys of a `config.json`; None takes one out."""
    file = folder / "config.json"
    config = {**json.loads(file.read_text()), **keys}
    file.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def published(block: nn.Module) -> dict[str, torch.Tensor]:
    """Return a decoder layer's tensors as checkpoints hold them: experts one by one."""
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in block.state_dict().items():
        if name == "mlp.experts.gate_up_proj":
            for expert, both in enumerate(weight):
                gate, up = both.chunk(2)
                tensors[f"mlp.experts.{expert}.gate_proj.weight"] = gate.clone()
                tensors[f"mlp.experts.{expert}.up_proj.weight"] = up.clone()
        elif name == "mlp.experts.down_proj":
            for expert, down in enumerate(weight):
                tensors[f"mlp.experts.{expert}.down_proj.weight"] = down.clone()
        else:
            tensors[name] = weight.clone()
    return tensors


@torch.no_grad()
def scramble(module: nn.Module, *, is_gemma_norm: bool = False) -> None:
    """Give every weight random values of a size at which logits are far apart, routers choose, and norms scale."""
    for name, weight in (*module.named_parameters(), *module.named_buffers()):
        noise = torch.randn(weight.shape)
        if "inv_freq" in name:
            continue
        if "e_score_correction_bias" in name:
            weight.copy_(0.2 * noise)
        elif weight.ndim == 1 and name.endswith("norm.weight"):
            weight.copy_(0.2 * noise + (0.0 if is_gemma_norm else 1.0))
        elif weight.ndim == 1:
            weight.copy_(0.2 * noise)
        elif "embed_tokens" in name:
            weight.copy_(0.7 * noise)
        else:
            weight.copy_(noise * weight.shape[-1] ** -0.5 * (3.0 if "lm_head" in name else 1.0))


def agreeing(made: MadeTarget, folder: Path) -> MadeTarget:
    """Write a target again so that its head is often right: layers do little, and the head passes the token on."""
    folder.mkdir(exist_ok=True)
    tensors = dict(made.tensors)
    for name, weight in tensors.items():
        if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
            tensors[name] = 0.15 * weight
    for layer in range(len(made.blocks)):
        tensors[made.name("enorm", layer) + ".weight"] = torch.full(
            (HIDDEN,), not made.kind.startswith("qwen3")
        ).float()
        tensors[made.name("norm", layer) + ".weight"] = tensors["model.norm.weight"].clone()
        tensors[made.name("join", layer) + ".weight"] = torch.cat(
            (torch.eye(HIDDEN), 0.1 * torch.eye(HIDDEN)), 1
        )
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text((made.folder / "config.json").read_text())
    return MadeTarget(made.kind, folder, made.config, tensors, made.blocks)
