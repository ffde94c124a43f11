"""A head or draft model together with its objective and its published format."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdec_plugin_dflash import save_dflash
from specdec_plugin_eagle import EagleHead
from specdec_plugin_eagle.saving import save_eagle, save_eagle3
from specdec_plugin_mlp import save_mlp_speculator
from specdec_plugin_mtp import MtpHead
from specdec_plugin_mtp.saving import layer_tensors
from specdec_train.heads.block import BlockObjective
from specdec_train.heads.chained import ChainedObjective
from specdec_train.heads.distilled import DistilledObjective
from specdec_train.heads.factored import whiten
from specdec_train.heads.finetuned import shared_modules
from specdec_train.heads.make import (
    head_config,
    load_for_training,
    make_draft,
    make_eagle,
    make_eagle3,
    make_mtp,
    read_layers,
)
from specdec_train.heads.make_dflash import make_dflash
from specdec_train.heads.make_mlp import make_mlp
from specdec_train.heads.recipe import BLOCK_METHODS, HeadRecipe
from specdec_train.heads.recurrent import RecurrentObjective
from specdec_train.heads.states import StateReader

Objective = RecurrentObjective | BlockObjective | ChainedObjective | DistilledObjective


@dataclass(frozen=True)
class Made:
    """A head in training."""

    module: nn.Module
    objective: Objective
    target_ids: Tensor | None
    """`[V']` target token id of each logit, or None if the vocabularies are the same."""
    write: Callable[[Path], None]
    """Writes `config.json` and `model.safetensors` in the published format."""


def make(
    recipe: HeadRecipe,
    target: PreTrainedModel,
    documents: Sequence[Sequence[int]],
    guessed: Sequence[Sequence[int]] | None = None,
) -> Made:
    """Return an initialised head with its objective.

    Args:
        recipe: kind and hyperparameters of the head.
        target: the target.
        documents: token ids of the training text.
        guessed: the part of it to predict, which determines the draft vocabulary; None for all.

    Raises:
        ValueError: if the target's layers are unsuitable.
    """
    if recipe.finetuned_from:
        return _finetuned(recipe, target)
    if recipe.method == "draft":
        draft = make_draft(target, recipe, documents)
        return Made(
            draft, DistilledObjective(draft, StateReader(target)), None, partial(_save_draft, draft, target)
        )
    if recipe.method == "mlp":
        heads = make_mlp(target, recipe)
        return Made(
            heads, ChainedObjective(heads, StateReader(target)), None, partial(save_mlp_speculator, heads)
        )
    if recipe.method == "eagle":
        head = make_eagle(target)
        objective = _recurrent(recipe, head, StateReader(target))
        return Made(head, objective, None, partial(save_eagle, head, config=head_config(target)))
    if recipe.method == "eagle3":
        eagle3, config = make_eagle3(target, recipe, documents if guessed is None else guessed)
        if recipe.is_fitted and eagle3.fc is not None:
            whiten(eagle3.fc)
        reader = StateReader(target, read_layers(target, recipe))
        objective = _recurrent(recipe, eagle3, reader)
        return Made(eagle3, objective, eagle3.target_ids, partial(save_eagle3, eagle3, config=config))
    if recipe.method in BLOCK_METHODS:
        dflash, config = make_dflash(target, recipe, documents if guessed is None else guessed)
        reader = StateReader(target, read_layers(target, recipe))
        block = BlockObjective(dflash, reader, decay=recipe.step_decay)
        return Made(dflash, block, dflash.target_ids, partial(save_dflash, dflash, config=config))
    if recipe.method == "mtp":
        mtp = make_mtp(target)
        return Made(mtp, _recurrent(recipe, mtp, StateReader(target)), None, partial(_save_mtp, mtp, target))
    raise ValueError(f"there is no head of the kind {recipe.method!r}")


def _finetuned(recipe: HeadRecipe, target: PreTrainedModel) -> Made:
    """Return a published head; its draft vocabulary stays the same."""
    reader = StateReader(target, read_layers(target, recipe))
    head, config = load_for_training(target, recipe)
    objective = _recurrent(recipe, head, reader)
    shared = shared_modules(head, target)
    if isinstance(head, EagleHead):
        return Made(head, objective, None, partial(save_eagle, head, config=config, shared=shared))
    if head.fc is not None:
        whiten(head.fc)
    return Made(head, objective, head.target_ids, partial(save_eagle3, head, config=config, shared=shared))


def _save_draft(draft: PreTrainedModel, target: PreTrainedModel, directory: Path) -> None:
    draft.generation_config = target.generation_config
    draft.save_pretrained(directory)


def _save_mtp(head: MtpHead, target: PreTrainedModel, directory: Path) -> None:
    """Write only the layer, under its names in a target's checkpoint."""
    directory.mkdir(parents=True, exist_ok=True)
    config = target.config.get_text_config()
    tensors = layer_tensors(head, config.num_hidden_layers)
    described = head_config(target) | {
        "architectures": ["DeepSeekMTPModel"],
        "num_hidden_layers": config.num_hidden_layers,
        "num_nextn_predict_layers": head.num_stages,
        "torch_dtype": "bfloat16",
    }
    (directory / "config.json").write_text(json.dumps(described, indent=2, sort_keys=True) + "\n")
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def _recurrent(recipe: HeadRecipe, head: object, reader: StateReader) -> RecurrentObjective:
    return RecurrentObjective(
        head,  # type: ignore[arg-type]  # a DraftHead
        reader,
        num_steps=recipe.num_steps,
        decay=recipe.step_decay,
        regression=recipe.regression,
    )


def to_bfloat16(module: nn.Module) -> None:
    """Cast a head's trained weights to bfloat16 for storage; weights shared with the target are unchanged."""
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.bfloat16)
