"""Which models have layers that keep states."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def keeps_states(config: PretrainedConfig) -> bool:
    """Return whether layers of a language model keep states in the cache of `transformers`, as its configuration says.

    False for versions of `transformers` whose cache has no states, too, and for configurations that no cache fits.
    """
    try:
        from transformers.cache_utils import (
            DYNAMIC_LAYER_TYPE_MAPPING,
            LinearAttentionCacheLayerMixin,
            get_layer_types_and_kwargs,
        )

        kinds, _ = get_layer_types_and_kwargs(config.get_text_config())
    except (ImportError, AttributeError, ValueError):
        return False
    return any(
        issubclass(DYNAMIC_LAYER_TYPE_MAPPING.get(kind, object), LinearAttentionCacheLayerMixin)
        for kind in kinds
    )
