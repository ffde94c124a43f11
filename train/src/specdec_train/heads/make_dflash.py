"""Initialises DFlash and DSpark heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from specdec_plugin_dflash import DFlashHead, DFlashSettings
from specdec_runtime.models import decoder_layers, input_embedding, output_head
from specdec_train.heads.make import count_ids, draft_ids, head_config, read_layers
from specdec_train.heads.recipe import HeadRecipe
from specdec_train.heads.weights import weight_of

_FROM_TARGET = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act",
    "rms_norm_eps", "rope_theta", "rope_parameters", "max_position_embeddings", "vocab_size",
)  # fmt: skip


def make_dflash(
    target: PreTrainedModel, recipe: HeadRecipe, documents: Sequence[Sequence[int]]
) -> tuple[DFlashHead, dict[str, Any]]:
    """Return a head for a target, and the configuration to publish it with.

    Its mask is the id that the text needs least: a block's rows are told apart by their positions.

    Args:
        target: the target.
        recipe: sets the number of layers, the size of the block and of the draft vocabulary.
        documents: token ids of the training text, for their frequencies.

    Raises:
        ValueError: if the target's layers are not of the Llama structure.
    """
    theirs = head_config(target)
    size, vocab_size = int(theirs["hidden_size"]), int(theirs["vocab_size"])
    counts = count_ids(documents, vocab_size)
    ids = draft_ids(counts, recipe)
    layers = read_layers(target, recipe)
    config = {key: theirs[key] for key in _FROM_TARGET if key in theirs} | {
        "model_type": "qwen3",
        "num_hidden_layers": recipe.num_layers,
        "num_target_layers": target.config.get_text_config().num_hidden_layers,
        "head_dim": theirs.get("head_dim") or size // int(theirs["num_attention_heads"]),
        "layer_types": ["full_attention"] * recipe.num_layers,
        "attention_bias": False,
        "tie_word_embeddings": False,
    }
    own = {
        "mask_token_id": vocab_size - 1 - int(counts.flip(0).argmin()),
        "target_layer_ids": [k - 1 for k in layers],
    }
    if (
        recipe.method == "dspark"
    ):  # in the layout of DeepSpec, whose blocks begin to predict with their first row
        config |= own | {
            "architectures": ["Qwen3DSparkModel"],
            "block_size": recipe.num_steps,
            "markov_rank": recipe.markov_rank,
            "markov_head_type": "vanilla",
            "enable_confidence_head": False,
        }
    else:
        config |= {"block_size": recipe.num_steps + 1, "dflash_config": own}
    if ids is not None:
        config["draft_vocab_size"] = len(ids)
    settings = DFlashSettings.from_dict(config, "the target", num_layers=int(config["num_target_layers"]))
    projection = output_head(target)
    head = DFlashHead(settings, input_embedding(target), projection if ids is None else None)
    with torch.no_grad():
        weight_of(head.model.model.norm).copy_(weight_of(target.base_model.norm))
        if ids is not None:
            head.target_ids = ids.to(target.device)
            head.model.lm_head.weight.copy_(weight_of(projection)[head.target_ids])
        if head.stage is not None:  # without a bias at first
            head.stage.get_parameter("markov_head.markov_w2.weight").zero_()
        for layer in head.layers:
            for part in (layer.self_attn.o_proj, layer.mlp.down_proj):
                weight_of(part).zero_()
            _take_over(layer.mlp, decoder_layers(target)[-1].get_submodule("mlp"))
    head.requires_grad_(True)
    for shared in (input_embedding(target), projection):
        shared.requires_grad_(False)
    head.train()
    return head, config


def _take_over(mlp: nn.Module, theirs: nn.Module) -> None:
    for name in ("gate_proj", "up_proj"):
        weight_of(mlp.get_submodule(name)).copy_(weight_of(theirs.get_submodule(name)))
