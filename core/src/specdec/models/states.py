"""Which models have layers that keep states, and the part of specdec that keeps these."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torch import nn

from specdec import registry
from specdec.errors import ModelError
from specdec.interfaces.head import DraftHead
from specdec.interfaces.layer_states import LayerStates
from specdec.models.spread import places

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


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


def layer_states(module: nn.Module, *, is_invariant: bool) -> LayerStates | None:
    """Return what keeps the states of a model's layers; None if none keeps any.

    Raises:
        ModelError: for a model that is spread over several devices, or batch-invariant logits.
        PluginError: if the package is not installed.
    """
    model = cast("PreTrainedModel", module)
    if isinstance(module, DraftHead) or not keeps_states(model.config):
        return None
    if found := places(model):
        raise ModelError(
            f"{type(module).__name__} keeps recurrent states, and is spread over {', '.join(sorted(found))}: such layers are "
            "served on one device, without device_map"
        )
    if is_invariant:
        raise ModelError(
            f"{type(module).__name__} keeps recurrent states, whose layers have no form with the same bits in any pass: leave "
            "deterministic out"
        )
    return registry.part("recurrent_states", LayerStates)()
