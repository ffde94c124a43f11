"""Checks which models can be split over ranks, and makes the arguments with which `transformers` splits them."""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig

from specdec import ModelError
from specdec_runtime.models import keeps_states

_KEY_PROJECTIONS = ("k_proj", "qkv_proj", "query_key_value")


def split_arguments(config: PretrainedConfig, name: str, size: int) -> dict[str, Any]:
    """Return arguments of `from_pretrained` that load this rank's part of a model.

    Args:
        config: the model's configuration.
        name: path or hub id, for messages.
        size: number of ranks.

    Raises:
        ModelError: if the model cannot be split over that many ranks.
    """
    try:
        from transformers.distributed.configuration_utils import DistributedConfig
    except ImportError as error:
        raise ModelError(
            "tensor_parallel_size above 1 needs a newer transformers: pip install -U transformers"
        ) from error
    if keeps_states(config):
        raise ModelError(
            f"{name} has layers that keep recurrent states, which are not split over ranks: use tensor_parallel_size=1"
        )
    text = config.get_text_config()
    plan = getattr(text, "base_model_tp_plan", None)
    if not plan:
        raise ModelError(
            f"{name}: transformers has no plan to split {text.model_type!r} models over ranks (base_model_tp_plan): use "
            "tensor_parallel_size=1, or device_map='auto' for layers on several devices"
        )
    layers = getattr(text, "per_layer_config", None) or [text]
    counts = [("query", layer.num_attention_heads) for layer in layers]
    if any(key.rsplit(".", 1)[-1] in _KEY_PROJECTIONS and style == "colwise" for key, style in plan.items()):
        counts += [
            ("key and value", getattr(layer, "num_key_value_heads", None) or layer.num_attention_heads)
            for layer in layers
        ]
    for kind, count in counts:
        if count % size:
            fitting = [n for n in range(1, size) if all(c % n == 0 for _, c in counts)]
            raise ModelError(
                f"{name}: its {count} {kind} heads cannot be divided among {size} ranks: use tensor_parallel_size="
                f"{' or '.join(map(str, reversed(fitting)))}"
            )
    return {"distributed_config": DistributedConfig(tp_plan="auto")}
