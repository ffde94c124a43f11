"""Finds the parts of a `transformers` model that the engine needs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from torch import nn

from specdec.errors import ModelError
from specdec_runtime.interfaces.blocks import BlockLinear

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CACHE_ARGUMENTS = ("cache", "cache_params", "past_key_values")
"""Names of the argument that takes a cache; in `transformers` it is the first one since 5.24."""


def decoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """Return the list of decoder layers.

    Raises:
        ModelError: if no module list has as many entries as the configuration has layers, or these are in no cache.
    """
    wanted = model.config.get_text_config().num_hidden_layers
    lists = [m for m in model.base_model.modules() if isinstance(m, nn.ModuleList) and len(m) == wanted]
    for layers in lists:
        if _has_attention(layers[0]):
            return layers
    raise ModelError(
        f"{type(model).__name__}: no list of {wanted} decoder layers found"
        if not lists
        else f"{type(model).__name__} has layers without a place in the cache of transformers (layer_idx): they keep their "
        "states in the modules, where those of several requests would mix, and a rejected draft could not be rolled back"
    )


def _has_attention(layer: nn.Module) -> bool:
    return any(hasattr(module, "layer_idx") for module in layer.modules())


def input_embedding(model: PreTrainedModel) -> nn.Module:
    """Return the module that maps ids to embeddings."""
    module = model.get_input_embeddings()
    assert isinstance(module, nn.Module)
    return module


def output_head(model: PreTrainedModel) -> nn.Module:
    """Return the module that maps final hidden states to logits.

    Raises:
        ModelError: if the model has none.
    """
    module = model.get_output_embeddings()
    if not isinstance(module, nn.Module):
        raise ModelError(f"{type(model).__name__} has no output head; specdec serves causal language models")
    return module


def has_blocks(model: nn.Module) -> bool:
    """Return whether weights of a model's linear maps are in blocks."""
    return any(isinstance(module, BlockLinear) for module in model.modules())


def keeps_logits_rows(model: PreTrainedModel) -> bool:
    """Return whether `forward` accepts `logits_to_keep`, the rows whose logits are needed."""
    return "logits_to_keep" in inspect.signature(model.forward).parameters


def cache_argument(module: nn.Module) -> str:
    """Return the name of the argument that takes a cache in the forward of a model, or of the layers of a head."""
    for part in module.modules():
        names = inspect.signature(part.forward).parameters
        for name in CACHE_ARGUMENTS:
            if name in names:
                return name
    return CACHE_ARGUMENTS[-1]
