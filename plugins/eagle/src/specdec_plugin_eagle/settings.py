"""Settings of an EAGLE head, read from a `config.json` in any dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, PretrainedConfig

from specdec import ModelError
from specdec_plugin_eagle.aux_layers import KEY, AuxLayers
from specdec_runtime.drafting.config_keys import factor_of, flag_of, number_of, size_of

_SPECULATORS = "transformer_layer_config"
_MASK_KEYS = ("mask_token_id", "pard_token", "ptd_token_id")
_MOST_LAYERS = 256
_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Families whose layers have the structure of Llama's, with or without query and key norms."""


@dataclass(frozen=True)
class EagleSettings:
    """The settings of a head.

    Args:
        layer_config: configuration of its `num_hidden_layers` decoder layers; `vocab_size` is that of the embedding.
        num_logits: number of ids it can draft.
        target_hidden_size: width of the target's states.
        aux_layers: target layers that EAGLE-3 reads; None for the default.
        uses_aux: whether EAGLE-3 reads these layers, or only the last hidden state: ModelOpt then writes an empty list, with or
            without a flag.
        is_normed_residual: EAGLE-3: the residual stream begins with the normed state (`norm_before_residual`).
        has_norm_before_fc: EAGLE-3: one norm over the concatenated states.
        has_fc_norms: EAGLE-3: one norm for each state.
        is_normed_carry: EAGLE-3: the next step takes the normed output (`norm_output`).
        has_para_norms: EAGLE-1: embedding and state are normed before concatenation (`add_para_norm`).
        mask_id: mask token for parallel drafting, which stands for tokens that are not known yet.
        logit_scale: factor on the logits.
    """

    layer_config: PretrainedConfig
    num_logits: int
    target_hidden_size: int
    aux_layers: AuxLayers | None = None
    uses_aux: bool = True
    is_normed_residual: bool = False
    has_norm_before_fc: bool = False
    has_fc_norms: bool = False
    is_normed_carry: bool = False
    has_para_norms: bool = False
    mask_id: int | None = None
    logit_scale: float = 1.0

    @property
    def num_states(self) -> int:
        """Number of target states that EAGLE-3 reads per token; three unless the checkpoint names more or fewer layers."""
        if not self.uses_aux:
            return 1
        return len(self.aux_layers.ids) if self.aux_layers else 3

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], place: str, *, is_eagle3: bool) -> EagleSettings:
        """Read a published configuration: a plain layer configuration with EAGLE's keys beside it, one nested in vLLM's
        `model` key, or the speculators format.

        Args:
            config: contents of `config.json`.
            place: location named in errors.
            is_eagle3: whether it is an EAGLE-3 head.

        Raises:
            ModelError: if it does not describe layers that this package supports.
        """
        is_speculators = isinstance(config.get(_SPECULATORS), Mapping)
        nested = config.get(_SPECULATORS) if is_speculators else config.get("model")
        layer = dict(nested) if isinstance(nested, Mapping) else dict(config)
        more = {**layer, **config}
        if more.get("layernorms"):
            raise ModelError(
                f"{place}: layernorms is true, which means a norm after the layer and one of its input, and not those of "
                "add_para_norm: this package has no such head"
            )
        layer_config = _layer_config(layer, place)
        aux_layers = AuxLayers.from_config(more, place, is_speculators=is_speculators)
        inner = more.get("eagle_config")
        if isinstance(inner, Mapping):
            more = {**more, **inner}
        default_residual = is_speculators and config.get("speculators_model_type") == "eagle3"
        num_logits = number_of(more, "draft_vocab_size", place, least=0) if is_eagle3 else None
        return cls(
            layer_config=layer_config,
            num_logits=num_logits or layer_config.vocab_size,
            target_hidden_size=number_of(more, "target_hidden_size", place, least=0)
            or layer_config.hidden_size,
            aux_layers=aux_layers,
            uses_aux=flag_of(more, "use_aux_hidden_state", place, more.get(KEY) != []),
            is_normed_residual=flag_of(more, "norm_before_residual", place, default_residual),
            has_norm_before_fc=flag_of(more, "norm_before_fc", place),
            has_fc_norms=flag_of(more, "fc_norm", place),
            is_normed_carry=flag_of(more, "norm_output", place),
            has_para_norms=flag_of(more, "add_para_norm", place),
            mask_id=_mask_id(more, place),
            logit_scale=factor_of(more, "logit_scale", place) or 1.0,
        )


def _layer_config(layer: Mapping[str, Any], place: str) -> PretrainedConfig:
    """Return the configuration of the decoder layers."""
    kind = layer.get("model_type", "llama")
    if kind in ("eagle", "eagle3"):
        kind = "llama"
    if kind not in _FAMILIES:
        raise ModelError(
            f"{place}: model_type is {kind!r}, and layers of heads are of {', '.join(_FAMILIES)}: this package has no such "
            "head"
        )
    for key in ("hidden_size", "num_attention_heads", "vocab_size"):
        size_of(layer, key, place, "an EAGLE head")
    num_layers = number_of(layer, "num_hidden_layers", place, least=0, most=_MOST_LAYERS)
    known = {
        key: value for key, value in layer.items() if key not in ("model_type", "architectures", "auto_map")
    }
    try:
        config: PretrainedConfig = AutoConfig.for_model(kind, **known)
        with torch.device("meta"):
            AutoModel.from_config(config)
    except Exception as error:  # its checks of fields and its layers raise errors of many types
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"{place}: transformers has no layers for this configuration ({reason})") from None
    config.num_hidden_layers = num_layers or 1
    return _as_llama(config) if kind == "mistral" else config


def _as_llama(config: PretrainedConfig) -> PretrainedConfig:
    """Return the configuration of Llama layers that equal Mistral's, which have one window for all."""
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    keys = {key: value for key, value in config.to_dict().items() if key != "model_type"}
    same: PretrainedConfig = AutoConfig.for_model("llama", **keys | {"layer_types": kinds})
    return same


def _mask_id(config: Mapping[str, Any], place: str) -> int | None:
    inner = config.get("dflash_config")
    found = [number_of(inner, _MASK_KEYS[0], place, least=0)] if isinstance(inner, Mapping) else []
    found += [number_of(config, key, place, least=0) for key in _MASK_KEYS]
    return next((value for value in found if value is not None), None)
