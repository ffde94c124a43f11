"""Converts the `config.json` of a head between the published dialect and the speculators format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec import ConfigError
from specdec.config import Checkpoint
from specdec_plugin_eagle.aux_layers import KEY
from specdec_plugin_eagle.settings import EagleSettings

SPECULATORS_KEY = "transformer_layer_config"
"""The key that only the speculators format has."""
_FORMAT_VERSION = "0.3.0"
_OWN_KEYS = frozenset(
    {
        "architectures", "auto_map", "draft_vocab_size", "target_hidden_size", "eagle_aux_hidden_state_layer_ids",
        "eagle_config", "use_aux_hidden_state", "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output",
        "add_para_norm", "layernorms", "eagle_fc_bias", "fusion_bias", "mask_token_id", "pard_token", "ptd_token_id",
        "dflash_config", "logit_scale", "model", "eagle_aux_layer_semantics",
    }
)  # fmt: skip
"""Keys of the head itself, in either dialect; all others describe its decoder layers."""


def layer_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that describe the decoder layers, from either dialect."""
    nested = config.get(SPECULATORS_KEY) or config.get("model")
    layer = nested if isinstance(nested, Mapping) else config
    found = {key: value for key, value in layer.items() if key not in _OWN_KEYS}
    if found.get("model_type") in (None, "eagle", "eagle3"):
        found["model_type"] = "llama"
    return found


def speculators_config(
    config: Mapping[str, Any],
    settings: EagleSettings,
    *,
    is_eagle3: bool,
    has_fc_bias: bool,
    verifier: str | None,
    num_tokens: int,
) -> dict[str, Any]:
    """Return the `config.json` in the speculators format.

    Args:
        config: the published configuration.
        settings: the settings read from it; ids of layers count inputs.
        is_eagle3: whether it is an EAGLE-3 head.
        has_fc_bias: whether its `fc` has a bias.
        verifier: directory or hub id of the target; None to name none.
        num_tokens: k.

    Raises:
        ConfigError: if the format cannot hold such a head.
    """
    kind = "eagle" if not is_eagle3 else "eagle3" if settings.mask_id is None else "peagle"
    name = {"eagle": "EagleSpeculator", "eagle3": "Eagle3Speculator", "peagle": "PEagleSpeculator"}[kind]
    out: dict[str, Any] = {
        "architectures": [name],
        "speculators_model_type": kind,
        "speculators_version": _FORMAT_VERSION,
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": num_tokens}],
            "verifier": {"name_or_path": verifier, "architectures": _architectures(verifier)},
        },
        SPECULATORS_KEY: layer_keys(config),
    }
    if not is_eagle3:
        if settings.has_para_norms:
            raise ConfigError(
                "add_para_norm: the speculators format has no norm of the state before fc (its layernorms has one after the "
                "layer), so this head cannot be converted to it"
            )
        out |= {"fusion_bias": has_fc_bias, "layernorms": False}
    else:
        out |= {
            "draft_vocab_size": settings.num_logits,
            "norm_before_residual": settings.is_normed_residual,
            "norm_before_fc": settings.has_norm_before_fc,
            "fc_norm": settings.has_fc_norms,
            "norm_output": settings.is_normed_carry,
        }
    return out | _common(settings) | ({} if settings.mask_id is None else {"mask_token_id": settings.mask_id})


def published_config(
    config: Mapping[str, Any], settings: EagleSettings, *, is_eagle3: bool, has_fc_bias: bool
) -> dict[str, Any]:
    """Return the flat `config.json` of the papers' repositories; arguments as for `speculators_config`."""
    name = "LlamaForCausalLMEagle3" if is_eagle3 else "LlamaForCausalLM"
    out: dict[str, Any] = {"architectures": [name], **layer_keys(config)}
    if is_eagle3:
        out["draft_vocab_size"] = settings.num_logits
    habits = {
        "norm_before_residual": settings.is_normed_residual,
        "norm_before_fc": settings.has_norm_before_fc,
        "fc_norm": settings.has_fc_norms,
        "norm_output": settings.is_normed_carry,
        "add_para_norm": settings.has_para_norms,
        "eagle_fc_bias": has_fc_bias,
    }
    out |= {key: True for key, is_so in habits.items() if is_so}
    if settings.aux_layers is not None and settings.aux_layers.ids[0] == 1:  # else they might count outputs
        out["eagle_config"] = {KEY: [i - 1 for i in settings.aux_layers.ids]}
    return out | _common(settings) | ({} if settings.mask_id is None else {"ptd_token_id": settings.mask_id})


def _common(settings: EagleSettings) -> dict[str, Any]:
    """Return the keys that are the same in both dialects, if they differ from the defaults."""
    out: dict[str, Any] = {}
    if settings.target_hidden_size != settings.layer_config.hidden_size:
        out["target_hidden_size"] = settings.target_hidden_size
    if settings.aux_layers is not None and settings.uses_aux:
        out[KEY] = list(settings.aux_layers.ids)
    if not settings.uses_aux:
        out["eagle_config"] = {"use_aux_hidden_state": False}
    if settings.logit_scale != 1.0:
        out["logit_scale"] = settings.logit_scale
    return out


def _architectures(verifier: str | None) -> list[str]:
    """Return the target's architectures if it is a local directory; nothing is downloaded."""
    if verifier is None or not Path(verifier).is_dir():
        return []
    found = (Checkpoint(verifier, None).config or {}).get("architectures")
    return list(found) if isinstance(found, list) else []
