"""Checks which models can be served correctly; others are refused at load, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import PretrainedConfig

from specdec.config import Checkpoint
from specdec.errors import ModelError
from specdec_runtime.loading.text_part import check_text_part, is_multimodal
from specdec_runtime.models import keeps_states

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ATTENTION_LAYERS = frozenset(
    {"full_attention", "sliding_attention", "attention", "chunked_attention", "dense", "sparse", "mlp", "moe"}
)
_STATE_LAYERS = frozenset({"conv", "hybrid", "hybrid_sliding", "linear_attention", "mamba"})
_LENGTH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})
_FORGET_IN_CACHE = frozenset({"moshi"})
"""Types of models whose layers attend to all positions, while the cache of `generate` forgets those beyond `sliding_window`."""


def check_complete(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint that is not a complete model.

    Raises:
        ModelError: for adapters, which name a base model anywhere, and for directories without a configuration.
    """
    name = checkpoint.model
    if checkpoint.file("adapter_config.json") is not None:
        raise ModelError(
            f"{name} holds an adapter, not a model: merge it first (peft: model.merge_and_unload().save_pretrained(...))"
        )
    if checkpoint.is_directory and checkpoint.file("config.json") is None:
        raise ModelError(f"{name} has no config.json: it is not a transformers checkpoint")


def check_config(config: PretrainedConfig, name: str) -> None:
    """Refuse architectures that are not, and do not contain, a plain decoder-only language model.

    Raises:
        ModelError: naming the part of the configuration that cannot be served, or the package that it needs.
    """
    if config.is_encoder_decoder:
        raise ModelError(f"{name} is an encoder-decoder model; specdec serves decoder-only language models")
    if is_multimodal(config):
        check_text_part(config, name)
        config = config.get_text_config()
    layer_types = set(getattr(config, "layer_types", None) or ()) | set(
        getattr(config, "layers_block_type", None) or ()
    )
    known = _ATTENTION_LAYERS
    if keeps_states(config):
        known |= _STATE_LAYERS
    other = sorted(layer_types - known)
    if other:
        raise ModelError(
            f"{name} has layers of type {', '.join(other)}, whose cache specdec does not know, and cannot roll back after a "
            "rejected draft"
        )


def check_model(model: PreTrainedModel, name: str) -> None:
    """Refuse models whose attention bypasses the interface, or whose states are elsewhere than in the cache of `transformers`.

    Raises:
        ModelError: with the reason.
    """
    if keeps_states(model.config):
        return  # the runner tries which layers attend, and where the others keep their states
    if getattr(model, "_is_stateful", False):
        raise ModelError(
            f"{name} ({type(model).__name__}) keeps recurrent state elsewhere than in the cache of transformers, and it cannot "
            "be rolled back"
        )
    if not getattr(model, "_supports_attention_backend", False):
        raise ModelError(
            f"{name} ({type(model).__name__}) does not use transformers' attention interface, so its attention would not "
            "see the paged cache"
        )


def check_rope(config: PretrainedConfig, max_model_len: int, name: str) -> None:
    """Refuse position scaling that depends on the longest position of a packed pass, and windows of `generate` alone.

    Raises:
        ModelError: unless the context window stays below the length at which they begin.
    """
    if config.model_type in _FORGET_IN_CACHE and max_model_len > config.sliding_window:
        raise ModelError(
            f"{name} attends to all positions, and with transformers' generate to the last {config.sliding_window}: pass "
            f"max_model_len={config.sliding_window} or less, where both give the same text"
        )
    for parameters in _rope_parameters(config):
        kind = parameters.get("rope_type", parameters.get("type"))
        if kind not in _LENGTH_DEPENDENT_ROPE:
            continue
        limit = parameters.get("original_max_position_embeddings") or getattr(
            config, "original_max_position_embeddings", None
        )
        limit = int(limit or getattr(config, "max_position_embeddings", None) or 0)
        if max_model_len > limit:
            raise ModelError(
                f"{name} scales positions by the length of the context (rope_type {kind!r}), which differs between the "
                f"requests of a batch; pass max_model_len={limit} or less, below which nothing is scaled"
            )


def _rope_parameters(config: PretrainedConfig) -> list[dict[str, Any]]:
    value = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = [part for part in value.values() if isinstance(part, dict)]
    return nested or [value]
