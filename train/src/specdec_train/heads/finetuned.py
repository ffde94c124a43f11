"""Loads a published EAGLE head whose training is continued."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedModel

from specdec import EngineOptions
from specdec.config import ZOO, TargetFacts, zoo_draft
from specdec.interfaces import TargetHandle
from specdec_hosting import HostTarget
from specdec_hosting.models import HostModels
from specdec_plugin_eagle import Eagle3Head, EagleHead, EagleSettings
from specdec_plugin_eagle.aux_layers import layers_read
from specdec_plugin_eagle.dialects import SPECULATORS_KEY, published_config
from specdec_plugin_eagle.loading import load_eagle, load_eagle3
from specdec_runtime.drafting import HeadCheckpoint
from specdec_runtime.models import input_embedding, output_head
from specdec_train.heads.recipe import HeadRecipe
from specdec_train.heads.weights import weight_of

logger = logging.getLogger("specdec")

_DTYPES = ("dtype", "torch_dtype")


def published_layers(target: PreTrainedModel, recipe: HeadRecipe) -> tuple[int, ...]:
    """Return the layers whose inputs the published head reads beside the target's final states.

    Raises:
        ConfigError: if it reads layers that the target does not have.
        ModelError: if it is not an EAGLE-3 head that can be loaded.
    """
    checkpoint = _checkpoint(recipe, target)
    settings = EagleSettings.from_dict(checkpoint.config, str(checkpoint), is_eagle3=True)
    if not settings.uses_aux:
        return ()
    num_layers: int = target.config.get_text_config().num_hidden_layers
    return layers_read(settings.aux_layers, num_layers, str(checkpoint))


def load_published(
    target: PreTrainedModel, recipe: HeadRecipe
) -> tuple[EagleHead | Eagle3Head, Mapping[str, Any]]:
    """Return the head, in float32 and on the target's device, and the configuration that it was published with.

    Raises:
        ModelError: if it cannot be loaded, or is not a head of this kind for this target.
    """
    checkpoint = _checkpoint(recipe, target)
    handle = _handle(target)
    head: EagleHead | Eagle3Head
    if recipe.method == "eagle":
        head = load_eagle(checkpoint, handle)
    else:
        settings = EagleSettings.from_dict(checkpoint.config, str(checkpoint), is_eagle3=True)
        head = load_eagle3(checkpoint, handle, settings, is_parallel=False)
    layers = head.body.config
    if "sliding_attention" in (getattr(layers, "layer_types", None) or ()):
        logger.warning(
            "%s: its layers see %s tokens, and training uses no windows: shorter texts lose nothing",
            checkpoint,
            layers.sliding_window,
        )
    config = checkpoint.config
    if SPECULATORS_KEY in config:
        is_eagle3 = isinstance(head, Eagle3Head)
        has_bias = head.fc is not None and head.fc.bias is not None
        config = published_config(config, head.settings, is_eagle3=is_eagle3, has_fc_bias=has_bias)
    return head, {key: value for key, value in config.items() if key not in _DTYPES}


def shared_modules(head: EagleHead | Eagle3Head, target: PreTrainedModel) -> tuple[str, ...]:
    """Return the names of a head's modules that are the target's."""
    theirs = (input_embedding(target), output_head(target))
    return tuple(name for name, module in head.named_children() if any(module is other for other in theirs))


def _checkpoint(recipe: HeadRecipe, target: PreTrainedModel) -> HeadCheckpoint:
    place = recipe.finetuned_from
    if place == ZOO:
        place = zoo_draft(recipe.method, None, TargetFacts(None, target.config.get_text_config().to_dict()))
    return HeadCheckpoint(place)


def _handle(target: PreTrainedModel) -> TargetHandle:
    """Return the parts of the target that a head is loaded with; it is trained in float32."""
    config = target.config.get_text_config()
    host = HostTarget(
        vocab_size=weight_of(output_head(target)).shape[0],
        max_model_len=config.max_position_embeddings,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        dtype=torch.float32,
        device=target.device,
        config=config,
        embed_tokens=input_embedding(target),
        lm_head=output_head(target),
    )
    return HostModels(host, EngineOptions(model="", attention_backend="sdpa")).handle()
