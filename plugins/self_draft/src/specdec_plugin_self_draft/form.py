"""Turns a model into the form that drafts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import nn

from specdec import ConfigError
from specdec_cli import progress
from specdec_kernels import AttendedRows, QuantizedLinear
from specdec_plugin_self_draft.config import SelfDraftConfig
from specdec_plugin_self_draft.kept import kept_file, read, write
from specdec_plugin_self_draft.quantize import is_found_again, quantized
from specdec_plugin_self_draft.short_head import Int64s, shorten_head
from specdec_plugin_self_draft.skipping import least_needed, leave_out
from specdec_runtime.models import decoder_layers, has_blocks, output_head

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger("specdec")

_FIRST_ROWS = 4
"""Rows at the beginning that take in the attention that no other row deserves (StreamingLLM, arXiv 2309.17453)."""


def cheaper(
    model: PreTrainedModel,
    config: SelfDraftConfig,
    tokenizer: PreTrainedTokenizerBase | None,
    drafted_ids: Int64s | None = None,
) -> PreTrainedModel:
    """Make a model, which may share its weights with another, into the form that drafts.

    Args:
        model: the model.
        config: the configuration.
        tokenizer: its tokenizer, if there is one.
        drafted_ids: ids that are drafted; None for all.

    Raises:
        ConfigError: if the configuration does not fit it.
    """
    if config.skip_layers:
        skipped = config.skip_layers
        if isinstance(skipped, int):
            skipped = least_needed(model, skipped, tokenizer)
            logger.info("self: drafts leave out the layers %s", ", ".join(map(str, skipped)))
        leave_out(model, skipped)
    if config.attention_window is not None:
        AttendedRows(_FIRST_ROWS, config.attention_window).set_in(decoder_layers(model))
    if drafted_ids is not None:
        shorten_head(model, drafted_ids)
    return quantize(model, config)


def quantize(model: PreTrainedModel, config: SelfDraftConfig) -> PreTrainedModel:
    """Replace the linear maps of a model, which may share its weights with another, by ones with weights of few bits.

    Raises:
        ConfigError: if a map does not fit the groups.
    """
    head = output_head(model)
    if has_blocks(model) and not (config.skip_layers or config.attention_window):
        raise ConfigError(
            "speculative_config: 'self' does not pay here: the target's weights have the few bits of its file already, so that "
            "drafts would be as dear; set skip_layers or attention_window, or LLM's weights='widen'"
        )
    found = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    layers = [linear for linear in found.values() if linear is not head]
    weights = _settled(config.weights, layers, config.group_size)
    head_weights = _settled(config.head_weights or config.weights, [head], config.group_size)
    wanted = {name: head_weights if linear is head else weights for name, linear in found.items()}
    bits = {name: 8 if own == "int8" else 4 for name, own in wanted.items() if own != "own"}
    found = {name: found[name] for name in bits}
    for name, linear in found.items():
        if bits[name] == 4 and linear.in_features % config.group_size:
            raise ConfigError(
                f"speculative_config: 'group_size': {config.group_size} does not divide the {linear.in_features} inputs of "
                f"{name}: take one that does, or 'weights': 'int8'"
            )
    for name, rounded in _rounded(found, bits, config.group_size).items():
        model.set_submodule(name, rounded)
    return model


def _rounded(
    linears: Mapping[str, nn.Linear], bits: Mapping[str, int], group_size: int
) -> dict[str, QuantizedLinear]:
    """Return the maps with rounded weights, from disk if they were rounded before."""
    if not linears:
        return {}
    with progress("rounding weights for drafts", len(linears)) as steps:
        file = kept_file(linears, bits, group_size)
        rounded = {} if file is None else read(file, linears)
        if rounded:
            return rounded
        for name, linear in linears.items():
            rounded[name] = quantized(linear, bits[name], group_size)
            steps.advance()
        if file is not None:
            write(file, rounded)
    return rounded


def _settled(weights: str, linears: Sequence[nn.Module], group_size: int) -> str:
    """Return int8, int4 or own; `auto` is int4 if that loses nothing of any of the maps."""
    if weights != "auto":
        return weights
    has_four_bits = all(
        isinstance(linear, nn.Linear)
        and linear.in_features % group_size == 0
        and is_found_again(linear.weight, group_size)
        for linear in linears
    )
    return "int4" if has_four_bits else "int8"
