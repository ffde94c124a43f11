"""Turns a model into the form that drafts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import nn

from specdec import ConfigError
from specdec_cli import progress
from specdec_kernels import AttendedRows
from specdec_plugin_self_draft.config import SelfDraftConfig
from specdec_plugin_self_draft.kept import kept_file, read, write
from specdec_plugin_self_draft.quantize import is_found_again, quantized
from specdec_plugin_self_draft.short_head import Int64s, shorten_head
from specdec_plugin_self_draft.skipping import least_needed, leave_out
from specdec_runtime.interfaces import QuantizedLinear
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
    *,
    is_kept: bool = True,
) -> PreTrainedModel:
    """Make a model, which may share its weights with another, into the form that drafts.

    Args:
        model: the model.
        config: the configuration.
        tokenizer: its tokenizer, if there is one.
        drafted_ids: ids that are drafted; None for all.
        is_kept: whether rounded weights are kept on disk, and read from there.

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
    return quantize(model, config, is_kept=is_kept)


def quantize(model: PreTrainedModel, config: SelfDraftConfig, *, is_kept: bool = True) -> PreTrainedModel:
    """Replace the linear maps of a model, which may share its weights with another, by ones with weights of few bits.

    Raises:
        ConfigError: if a map does not fit the groups.
    """
    head = output_head(model)
    if (has_blocks(model) or _is_read_in_few_bits(model)) and not (
        config.skip_layers or config.attention_window
    ):
        raise ConfigError(
            "speculative_config: 'self' does not pay here: the target's weights have the few bits of its file already, so that "
            "drafts would be as dear; set skip_layers or attention_window, or LLM's weights='widen'"
        )
    found = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    of_head = config.head_weights or config.weights
    wanted = {name: of_head if linear is head else config.weights for name, linear in found.items()}
    found = {name: linear for name, linear in found.items() if wanted[name] != "own"}
    for name, rounded in _rounded(found, wanted, head, config.group_size, is_kept=is_kept).items():
        model.set_submodule(name, rounded)
    return model


def _is_read_in_few_bits(model: PreTrainedModel) -> bool:
    """Return whether modules of another library read a checkpoint's weights of few bits: its layers have no plain maps then."""
    if getattr(model, "hf_quantizer", None) is None:
        return False
    return not any(type(module) is nn.Linear for layer in decoder_layers(model) for module in layer.modules())


def _rounded(
    linears: Mapping[str, nn.Linear],
    wanted: Mapping[str, str],
    head: nn.Module,
    group_size: int,
    *,
    is_kept: bool = True,
) -> dict[str, QuantizedLinear]:
    """Return the maps with rounded weights, from disk if they were rounded before and are kept."""
    if not linears:
        return {}
    with progress("rounding weights for drafts", len(linears)) as steps:
        file = kept_file(linears, wanted, group_size) if is_kept else None
        rounded = {} if file is None else read(file, linears)
        if rounded:
            return rounded
        bits = _bits(linears, wanted, head, group_size)
        for name, linear in linears.items():
            rounded[name] = quantized(linear, bits[name], group_size)
            steps.advance()
        if file is not None:
            write(file, rounded)
    return rounded


def _bits(
    linears: Mapping[str, nn.Linear], wanted: Mapping[str, str], head: nn.Module, group_size: int
) -> dict[str, int]:
    """Return the bits of each map; `auto` is int4 if that loses nothing of the head, or nothing of any other map."""
    bits = {}
    for is_head in (False, True):
        names = [name for name, linear in linears.items() if (linear is head) == is_head]
        has_four = all(
            linears[name].in_features % group_size == 0 and is_found_again(linears[name].weight, group_size)
            for name in names
            if wanted[name] == "auto"
        )
        for name in names:
            bits[name] = 4 if wanted[name] == "int4" or (wanted[name] == "auto" and has_four) else 8
            if bits[name] == 4 and linears[name].in_features % group_size:
                raise ConfigError(
                    f"speculative_config: 'group_size': {group_size} does not divide the {linears[name].in_features} inputs of "
                    f"{name}: take one that does, or 'weights': 'int8'"
                )
    return bits
