"""Turns a model into the form that drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from specdec import ConfigError
from specdec.cli import progress
from specdec.runner import output_head
from specdec_plugin_self_draft.config import SelfDraftConfig
from specdec_plugin_self_draft.quantize import quantized

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def quantize(model: PreTrainedModel, config: SelfDraftConfig) -> PreTrainedModel:
    """Replace every linear map of a model, which may share its weights with another, by one with weights of few bits.

    Raises:
        ConfigError: if a map does not fit the groups.
    """
    head = output_head(model)
    found = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    with progress("rounding weights for drafts", len(found)) as steps:
        for name, linear in found.items():
            weights = (config.head_weights or config.weights) if linear is head else config.weights
            if weights == "int4" and linear.in_features % config.group_size:
                raise ConfigError(
                    f"speculative_config: 'group_size': {config.group_size} does not divide the {linear.in_features} inputs of "
                    f"{name}: take one that does, or 'weights': 'int8'"
                )
            model.set_submodule(name, quantized(linear, 8 if weights == "int8" else 4, config.group_size))
            steps.advance()
    return model
