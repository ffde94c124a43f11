"""DFlash and its relatives: which of them a head is, and those that compute something else, refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from specdec import ModelError


class Variant(NamedTuple):
    """A published relative of DFlash, and how its checkpoints show it."""

    name: str
    spellings: tuple[str, ...]
    """Parts of lower-case architectures, of `projector_type` and of `speculators_model_type`; the first one is the family."""
    keys: tuple[str, ...] = ()
    """What keys of `config.json` or `dflash_config` begin with, whose values are not 0 or false."""
    tensors: tuple[str, ...] = ()
    """What names of tensors begin with."""
    refused_for: str | None = None
    """What it computes beyond DFlash; None if this package does, too."""


_VARIANTS = (
    Variant(
        "DFlash2", ("dflash2",), ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
    ),
    Variant("DSpark", ("dspark",), ("markov_rank", "markov_head_type")),
    Variant("Domino", ("domino",), ("gru_hidden_dim",)),
    Variant("XPress", ("xpress",), ("xpress_",)),
    Variant(
        "LiLiCorr",
        ("lilicorr",),
        ("lilicorr_",),
        refused_for="a correction of each guess by the tokens before it",
    ),
    Variant("Muse-Glimmer's assistant", ("museglimmer",), (), ("encoder.",), "an encoder of its own"),
)


def family_of(config: Mapping[str, Any], tensors: Iterable[str], origin: str) -> str:
    """Return `dflash`, `dflash2`, `domino`, `dspark` or `xpress`, as the configuration tells it.

    Args:
        config: contents of `config.json`.
        tensors: names of the tensors.
        origin: location named in errors.

    Raises:
        ModelError: for another relative, naming it and what it computes that DFlash does not, or for other layers.
    """
    inner = config.get("dflash_config")
    inner = inner if isinstance(inner, Mapping) else {}
    names, merged = tuple(tensors), {**config, **inner}
    kind = merged.get("projector_type")
    declared = [kind, config.get("speculators_model_type")]
    architectures = config.get("architectures")
    declared += architectures if isinstance(architectures, list) else []
    said = [str(one).lower() for one in declared if one]
    family = "dflash"
    for variant in _VARIANTS:
        shown = (
            *(f"{one!r}" for one in said if any(spelling in one for spelling in variant.spellings)),
            *(key for key, value in merged.items() if key.startswith(variant.keys) and value),
            *(f"tensor {name!r}" for name in names if name.startswith(variant.tensors)),
        )
        if shown and variant.refused_for:
            raise ModelError(
                f"{origin} is a {variant.name} head ({shown[0]}): it has {variant.refused_for}, which DFlash does not, and "
                "this package does not run; take a DFlash, DSpark or EAGLE-3 head of this target"
            )
        if shown and family == "dflash":
            family = variant.spellings[0]
    if kind not in (None, "dflash", family):
        raise ModelError(
            f"{origin}: projector_type is {kind!r}, and this package runs DFlash and its relatives alone"
        )
    _check_layers(merged, config, names, origin)
    return family


def _check_layers(
    merged: Mapping[str, Any], config: Mapping[str, Any], names: tuple[str, ...], origin: str
) -> None:
    """Refuse layers that are not Qwen3's."""
    modes = merged.get("attention_modes") or [merged.get("attention_mode") or "gqa"]
    others = sorted({str(mode).lower() for mode in modes} - {"gqa", "mha"})
    layer = config.get("transformer_layer_config")
    kind = str((layer if isinstance(layer, Mapping) else config).get("model_type") or "")
    reasons = (
        (bool(others), f"attention_mode {', '.join(others)}"),
        (kind.startswith("gemma4"), f"layers of model_type {kind!r}, with norms around them"),
        (bool(merged.get("attention_sink_bias")), "attention_sink_bias"),
        (merged.get("attention_value_scale") not in (None, 1, 1.0), "attention_value_scale"),
        (merged.get("output_multiplier") not in (None, 1, 1.0), "output_multiplier"),
        (merged.get("input_embedding_scale") not in (None, 1, 1.0), "input_embedding_scale"),
        (
            False in (merged.get("is_neox_style"), merged.get("rope_is_neox_style")),
            "interleaved rotary embedding",
        ),
        ("mask_embedding" in names, "a mask_embedding beside the embedding"),
        (bool(merged.get("quantization_config")), "quantised weights (quantization_config)"),
    )
    found = [reason for is_so, reason in reasons if is_so]
    if found:
        raise ModelError(
            f"{origin}: {found[0]}: this package runs the DFlash heads of z-lab, speculators and ModelOpt, whose layers are "
            "Qwen3's; take such a head, or EAGLE-3"
        )
