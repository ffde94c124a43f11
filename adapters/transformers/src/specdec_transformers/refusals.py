"""Rejects arguments that the verify loop does not support; everything else is supported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation.configuration_utils import GenerationMode
from transformers.generation.logits_process import (
    LogitsProcessorList,
    SynthIDTextWatermarkLogitsProcessor,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
)

from specdec import ConfigError
from specdec.config import notice
from specdec_runtime.models import CACHE_ARGUMENTS

_OWN_DRAFTS = "speculation is set by speculative_config: leave it out"
_OWN_DRAFTING = {
    "prompt_lookup_num_tokens": "give speculative_config={'method': 'ngram', 'num_speculative_tokens': ...} instead",
    "assistant_early_exit": _OWN_DRAFTS,
    "assistant_ensemble_weight": _OWN_DRAFTS + "; specdec keeps the target's distribution",
    "speculation_type": _OWN_DRAFTS,
    "use_mtp": "give speculative_config={'method': 'mtp'} instead",
    "is_assistant": "the model that generates is the target: leave it out",
}
_NOT_RETURNED = {
    "output_attentions": "attention weights are never made",
    "output_hidden_states": "the hidden states of a pass include those of rejected drafted tokens",
}
_RUN_ONLY = ("cache_implementation", "cache_config", "max_cache_len", "prefill_chunk_size", "compile_config")
"""Parameters that affect how transformers' own loop runs, but not its output."""
_MODES = {
    GenerationMode.GREEDY_SEARCH,
    GenerationMode.SAMPLE,
    GenerationMode.ASSISTED_GENERATION,  # rejected by its parameters, for a better message
}
_KNOWN_INPUTS = {
    "attention_mask",
    "position_ids",
    "use_cache",
    "logits_to_keep",
    "cache_position",
    *CACHE_ARGUMENTS,
}
_STATEFUL = {
    UnbatchedClassifierFreeGuidanceLogitsProcessor: "guidance_scale: it runs the model along one text, and drafts are several",
    SynthIDTextWatermarkLogitsProcessor: "watermarking_config: SynthID's state follows one text, and drafts are several",
}


def check_call(
    model: PreTrainedModel,
    config: GenerationConfig,
    processors: LogitsProcessorList,
    inputs: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> None:
    """Reject unsupported arguments, and log once those without effect.

    Args:
        model: the model of the call.
        config: the generation config prepared by `generate`.
        processors: all logits processors.
        inputs: keyword arguments of the model's forward.
        arguments: arguments of `generate`, as far as they are known.

    Raises:
        ConfigError: naming the parameter and the remedy.
    """
    for name, remedy in _OWN_DRAFTING.items():
        if getattr(config, name, None):
            raise ConfigError(f"generate: {name}={getattr(config, name)!r} beside specdec: {remedy}")
    if arguments.get("assistant_model") is not None:
        raise ConfigError(
            "generate: assistant_model beside specdec: give speculative_config={'method': 'draft_model', 'model': PATH} instead"
        )
    if config.get_generation_mode() not in _MODES:
        raise ConfigError(
            f"generate: specdec serves greedy search and sampling, and this call asks for "
            f"{config.get_generation_mode().value} (num_beams={config.num_beams}): set num_beams=1, or leave "
            "custom_generate out"
        )
    for name, reason in _NOT_RETURNED.items():
        if getattr(config, name, None):
            raise ConfigError(f"generate: {name}=True: {reason}; leave it out, or leave custom_generate out")
    if arguments.get("synced_gpus"):
        raise ConfigError(
            "generate: synced_gpus=True: specdec does not run sharded models; leave custom_generate out"
        )
    for processor in processors:
        for kind, reason in _STATEFUL.items():
            if isinstance(processor, kind):
                raise ConfigError(f"generate: {reason}; leave it out, or leave custom_generate out")
    _check_inputs(inputs)
    _check_training(model)
    _say_what_has_no_effect(config)


def _check_inputs(inputs: Mapping[str, Any]) -> None:
    unknown = sorted(
        name for name, value in inputs.items() if value is not None and name not in _KNOWN_INPUTS
    )
    if unknown:
        raise ConfigError(
            f"generate: {', '.join(unknown)}: specdec takes token ids alone; leave it out, or leave custom_generate out"
        )
    for name in CACHE_ARGUMENTS:
        if getattr(inputs.get(name), "_is_user_defined", False):  # `generate` makes an empty one otherwise
            raise ConfigError(
                f"generate: {name}: specdec keeps its own cache, in which it finds prompts that begin alike: leave it out "
                "and give the whole conversation as input_ids"
            )


def _check_training(model: PreTrainedModel) -> None:
    if not model.training:
        return
    drops = any(isinstance(m, nn.Dropout) and m.p > 0 for m in model.modules())
    if drops or vars(model.config.get_text_config()).get("attention_dropout"):
        raise ConfigError("generate: the model is in training mode and has dropout: call model.eval() first")


def _say_what_has_no_effect(config: GenerationConfig) -> None:
    if config.cache_implementation == "quantized":
        raise ConfigError(
            "generate: cache_implementation='quantized' changes what comes out, and specdec's cache is exact: leave it out, or "
            "leave custom_generate out"
        )
    given = [name for name in _RUN_ONLY if getattr(config, name, None) is not None]
    if config.use_cache is False:
        given.append("use_cache")
    for name in given:
        notice(
            f"generate.{name}",
            f"generate: {name} has no effect beside specdec, which has a cache and passes of its own",
        )
