"""Which layers of a model keep states, as its configuration says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def state_layers(config: PretrainedConfig) -> dict[int, int]:
    """Return the layers of a language model that keep states in the cache of `transformers`, and how many of each kind.

    Empty for versions of `transformers` whose cache has no states, too.
    """
    try:
        from transformers.cache_utils import LinearAttentionCacheLayerMixin, get_layer_types_and_kwargs
    except ImportError:
        return {}
    _, settings = get_layer_types_and_kwargs(config.get_text_config())
    return {
        layer: settings[layer].get("number_of_states", 1)
        for layer, kind in enumerate(_cache_layers(config))
        if issubclass(kind, LinearAttentionCacheLayerMixin)
    }


def layers_without_attention(config: PretrainedConfig) -> set[int]:
    """Return the layers of a language model that keep states instead of keys and values, or neither."""
    from transformers.cache_utils import CacheLayerMixin

    return {
        layer for layer, kind in enumerate(_cache_layers(config)) if not issubclass(kind, CacheLayerMixin)
    }


def keeps_states(config: PretrainedConfig) -> bool:
    """Return whether layers of a language model keep states besides, or instead of, keys and values."""
    return bool(state_layers(config))


def _cache_layers(config: PretrainedConfig) -> list[type]:
    """Return the class of each layer in a cache of `transformers`; `object` if it has none."""
    from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING, get_layer_types_and_kwargs

    kinds, _ = get_layer_types_and_kwargs(config.get_text_config())
    return [DYNAMIC_LAYER_TYPE_MAPPING.get(kind, object) for kind in kinds]
