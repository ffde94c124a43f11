"""Which layers of a model keep states, as its configuration says."""

from __future__ import annotations

from transformers import PretrainedConfig
from transformers.cache_utils import (
    DYNAMIC_LAYER_TYPE_MAPPING,
    CacheLayerMixin,
    LinearAttentionCacheLayerMixin,
    get_layer_types_and_kwargs,
)


def state_layers(config: PretrainedConfig) -> dict[int, int]:
    """Return the layers of a language model that keep states in the cache of `transformers`, and how many of each kind."""
    _, settings = get_layer_types_and_kwargs(config.get_text_config())
    return {
        layer: settings[layer].get("number_of_states", 1)
        for layer, kind in enumerate(_cache_layers(config))
        if issubclass(kind, LinearAttentionCacheLayerMixin)
    }


def layers_without_attention(config: PretrainedConfig) -> set[int]:
    """Return the layers of a language model that keep states instead of keys and values, or neither."""
    return {
        layer for layer, kind in enumerate(_cache_layers(config)) if not issubclass(kind, CacheLayerMixin)
    }


def _cache_layers(config: PretrainedConfig) -> list[type]:
    """Return the class of each layer in a cache of `transformers`; `object` if it has none."""
    kinds, _ = get_layer_types_and_kwargs(config.get_text_config())
    return [DYNAMIC_LAYER_TYPE_MAPPING.get(kind, object) for kind in kinds]
