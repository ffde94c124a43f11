"""What a random head is like, its tensors under published names, and its files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from head_check.files import write_tensors
from head_check.target import VOCAB
from head_check.tensors import Drawn, layer_config
from torch import Tensor, nn

from specdec_plugin_dflash import DFlashHead, DFlashSettings
from specdec_plugin_dflash.names import published_name


@dataclass(frozen=True)
class Shape:
    """Sizes and habits of a head; the reference reads nothing else."""

    vocab: int = VOCAB
    hidden: int = 32
    target_hidden: int = 32
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 8
    intermediate: int = 40
    num_layers: int = 2
    num_logits: int = VOCAB
    theta: float = 10000.0
    epsilon: float = 1e-6
    has_attention_bias: bool = False
    aux: tuple[int, ...] = (2, 4, 6)
    """Inputs of the target's layers."""
    num_target_layers: int = 8
    block_size: int = 6
    mask_id: int = 60
    windows: tuple[int | None, ...] = (None, None)
    causal: tuple[bool, ...] = (False, False)
    is_from_anchor: bool = False
    """Whether windows are counted from the block's first row."""
    predicts_at_anchor: bool = False
    has_own_embedding: bool = False
    has_own_lm_head: bool = False
    has_map: bool = False
    softcap: float | None = None
    logit_scale: float = 1.0


def random_tensors(shape: Shape, seed: int = 0) -> dict[str, Tensor]:
    """Return weights whose logits are of order 1, all parts mattering."""
    s, out = shape, Drawn(shape, seed)
    out["fc.weight"] = out.matrix(s.hidden, len(s.aux) * s.target_hidden)
    out["hidden_norm.weight"] = out.vector(s.hidden, 1.0)
    out["norm.weight"] = out.vector(s.hidden, 1.0)
    for index in range(s.num_layers):
        at = f"layers.{index}."
        out[at + "input_layernorm.weight"] = out.vector(s.hidden, 1.0)
        out.add_layer(at, s.hidden, has_output_bias=s.has_attention_bias, has_head_norms=True)
    out.add_vocabulary()
    return out


@dataclass(frozen=True)
class Layout:
    """How a head is written down.

    Args:
        is_speculators: whether `config.json` is of the speculators format.
        is_sharded: whether weights are spread over files with an index.
        prefix: what all names begin with.
        renamed: tensors with names of their own.
        keys: further keys of `config.json`, or None to leave one out.
        layer_keys: the same for the layers, where they are apart.
        inner_keys: the same for `dflash_config`.
    """

    is_speculators: bool = False
    is_sharded: bool = False
    prefix: str = ""
    renamed: dict[str, str] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    layer_keys: dict[str, Any] = field(default_factory=dict)
    inner_keys: dict[str, Any] = field(default_factory=dict)


def write_head(folder: Path, shape: Shape, tensors: dict[str, Tensor], layout: Layout | None = None) -> str:
    """Write a head; returns the folder."""
    layout = layout or Layout()
    folder.mkdir(parents=True, exist_ok=True)
    config = _config(shape, layout)
    (folder / "config.json").write_text(json.dumps(config))
    named = {layout.renamed.get(n, layout.prefix + n): t for n, t in tensors.items()}
    write_tensors(folder, named, is_sharded=layout.is_sharded)
    return str(folder)


def make_head(
    folder: Path, shape: Shape, layout: Layout | None = None, seed: int = 0
) -> tuple[str, dict[str, Tensor]]:
    """Write a random head; returns its folder and tensors."""
    tensors = random_tensors(shape, seed)
    return write_head(folder, shape, tensors, layout), tensors


STAGES: dict[str, dict[str, Any]] = {
    "dspark": {"markov_rank": 4, "markov_head_type": "rnn", "enable_confidence_head": True},
    "dflash2": {"conv_kernel_size": 2, "conv_group_size": 8, "selector_rank": 4, "selector_top_k": 40},
    "domino": {"gru_hidden_dim": 6, "emb_dim": 5, "pure_draft_prefix_len": 1},
    "xpress": {"xpress_rank": 4},
}
"""Keys of heads with a stage, by family."""


def make_staged(folder: Path, shape: Shape, family: str) -> str:
    """Write a random head with the stage of a family; returns its folder."""
    keys = STAGES[family]
    if "selector_top_k" in keys:
        keys = keys | {"selector_top_k": min(keys["selector_top_k"], shape.vocab - 2)}
    layout = Layout(keys=keys)
    settings = DFlashSettings.from_dict(_config(shape, layout), "here", num_layers=shape.num_target_layers)
    head = DFlashHead(settings, nn.Embedding(shape.vocab, shape.hidden))
    generator = torch.Generator().manual_seed(5)
    own = {
        published_name(name): 0.5 * torch.randn(parameter.shape, generator=generator)
        for name, parameter in head.named_parameters()
        if name.startswith(("stage.", "convolutions."))
    }
    return write_head(folder, shape, random_tensors(shape) | own, layout)


def _config(shape: Shape, layout: Layout) -> dict[str, Any]:
    layer = layer_config(shape, "qwen3")
    layer["layer_types"] = ["full_attention" if w is None else "sliding_attention" for w in shape.windows]
    if any(shape.windows):
        layer |= {"use_sliding_window": True, "sliding_window": max(w for w in shape.windows if w)}
    if layout.is_speculators:
        config: dict[str, Any] = {
            "architectures": ["DFlashDraftModel"],
            "speculators_model_type": "dflash",
            "speculators_version": "0.9.0",
            "speculators_config": {
                "algorithm": "dflash",
                "default_proposal_method": "greedy",
                "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": shape.block_size - 1}],
                "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "some/target"},
            },
            "transformer_layer_config": layer | layout.layer_keys,
            "aux_hidden_state_layer_ids": list(shape.aux),
            "mask_token_id": shape.mask_id,
        }
    else:
        inner = {"mask_token_id": shape.mask_id, "target_layer_ids": [k - 1 for k in shape.aux]}
        config = {
            "architectures": ["DFlashDraftModel"],
            **layer,
            "num_target_layers": shape.num_target_layers,
        }
        config["dflash_config"] = _without_none(inner | layout.inner_keys)
    config |= {"block_size": shape.block_size, "draft_vocab_size": shape.num_logits}
    if shape.hidden != shape.target_hidden:
        config["target_hidden_size"] = shape.target_hidden
    if shape.predicts_at_anchor:
        config["sample_from_anchor"] = True
    if shape.softcap is not None:
        config["final_logit_softcapping"] = shape.softcap
    if shape.logit_scale != 1.0:
        config["logit_scale"] = shape.logit_scale
    return _without_none(config | layout.keys)


def _without_none(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if value is not None}
