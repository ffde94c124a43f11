"""Writes random heads to disk as the published ones are."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from head_check.files import write_tensors
from head_check.tensors import layer_config
from torch import Tensor

from eagle_check.shape import Shape


@dataclass(frozen=True)
class Layout:
    """How a head is written down.

    Args:
        first_layer: what the tensors of EAGLE-3's first layer begin with.
        prefix: what all names begin with.
        is_sharded: whether weights are spread over files with an index.
        is_speculators: whether `config.json` is of the speculators format.
        aux_place: `top`, `eagle_config` or None, where the ids of the target's layers are.
        aux_ids: these ids.
        renamed: tensors with names of their own.
        without: keys that are left out of `config.json`.
        keys: further keys of `config.json`.
        layer_keys: further keys of the layers in the speculators format.
    """

    first_layer: str = "midlayer."
    prefix: str = ""
    is_sharded: bool = False
    is_speculators: bool = False
    aux_place: str | None = "top"
    aux_ids: tuple[int, ...] = (1, 3, 6)
    renamed: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    keys: dict[str, Any] = field(default_factory=dict)
    layer_keys: dict[str, Any] = field(default_factory=dict)


def write_head(folder: Path, shape: Shape, tensors: dict[str, Tensor], layout: Layout | None = None) -> str:
    """Write a head; returns the folder."""
    layout = layout or Layout()
    folder.mkdir(parents=True, exist_ok=True)
    config = speculators_config(shape) if layout.is_speculators else published_config(shape)
    if shape.is_eagle3 and shape.num_aux and layout.aux_place is not None:
        place = config if layout.aux_place == "top" else config.setdefault("eagle_config", {})
        place["eagle_aux_hidden_state_layer_ids"] = list(layout.aux_ids)
    config |= layout.keys
    config.get("transformer_layer_config", {}).update(layout.layer_keys)
    for key in layout.without:
        config.pop(key, None)
        config.get("transformer_layer_config", {}).pop(key, None)
    (folder / "config.json").write_text(json.dumps(config))
    write_tensors(
        folder, {_name(n, shape, layout): t for n, t in tensors.items()}, is_sharded=layout.is_sharded
    )
    return str(folder)


def published_config(shape: Shape) -> dict[str, Any]:
    """Return the flat `config.json` of the papers' repositories."""
    config = {"architectures": ["LlamaForCausalLM"], **layer_config(shape, shape.family)}
    if shape.logit_scale != 1.0:
        config["logit_scale"] = shape.logit_scale
    if not shape.is_eagle3:
        return config | ({"add_para_norm": True} if shape.has_para_norms else {})
    config["architectures"] = ["LlamaForCausalLMEagle3"]
    return config | _habits(shape) | ({} if shape.mask_id is None else {"ptd_token_id": shape.mask_id})


def speculators_config(shape: Shape, verifier: str = "some/target", k: int = 3) -> dict[str, Any]:
    """Return the `config.json` of the speculators library."""
    kind = "eagle" if not shape.is_eagle3 else "eagle3" if shape.mask_id is None else "peagle"
    config: dict[str, Any] = {
        "architectures": ["Eagle3Speculator" if shape.is_eagle3 else "EagleSpeculator"],
        "speculators_model_type": kind,
        "speculators_version": "0.3.0",
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": k}],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": verifier},
        },
        "transformer_layer_config": layer_config(shape, shape.family),
    }
    if not shape.is_eagle3:
        return config | {"fusion_bias": shape.has_fc_bias, "layernorms": shape.has_para_norms}
    config |= _habits(shape)
    config.setdefault("norm_before_residual", shape.is_normed_residual)
    return config | ({} if shape.mask_id is None else {"mask_token_id": shape.mask_id})


def _habits(shape: Shape) -> dict[str, Any]:
    found: dict[str, Any] = {"draft_vocab_size": shape.num_logits}
    if shape.hidden != shape.target_hidden:
        found["target_hidden_size"] = shape.target_hidden
    for key, value in (
        ("norm_before_residual", shape.is_normed_residual),
        ("norm_before_fc", shape.has_norm_before_fc),
        ("fc_norm", shape.has_fc_norms),
        ("norm_output", shape.is_normed_carry),
    ):
        if value:
            found[key] = True
    if not shape.num_aux:
        found["eagle_config"] = {"use_aux_hidden_state": False}
    return found


def _name(name: str, shape: Shape, layout: Layout) -> str:
    if name in layout.renamed:
        return layout.renamed[name]
    if shape.is_eagle3 and name.startswith("layers.0."):
        name = layout.first_layer + name.removeprefix("layers.0.")
    return name if name in ("d2t", "t2d") else layout.prefix + name
