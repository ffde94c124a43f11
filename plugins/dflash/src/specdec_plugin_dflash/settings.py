"""Settings of a DFlash head, read from a `config.json` in any dialect."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from specdec import ModelError
from specdec_plugin_dflash.convolution import ConvolutionSettings
from specdec_plugin_dflash.stage_settings import StageSettings, read_stage
from specdec_plugin_dflash.variants import family_of
from specdec_plugin_dflash.views import View, read_views
from specdec_runtime.drafting.config_keys import factor_of, flag_of, ids_of, number_of, size_of

if TYPE_CHECKING:
    from transformers import Qwen3Config

logger = logging.getLogger("specdec")
_SPECULATORS = "transformer_layer_config"
_KIND = "a DFlash head"
_MOST_LAYERS = 256
_NOT_OF_LAYERS = frozenset(
    {
        "architectures", "auto_map", "model_type", "dflash_config", "layer_types", "sliding_window", "use_sliding_window",
        "max_window_layers", "is_causal", "dtype", "torch_dtype", "transformers_version", "final_logit_softcapping",
        "logit_scale",
    }
)  # fmt: skip
"""Keys that the layers are not made with: windows, scale and soft cap are this package's own."""


@dataclass(frozen=True)
class DFlashSettings:
    """The settings of a head.

    Args:
        layer_config: configuration of its Qwen3 layers, which see everything; `vocab_size` is that of the embedding.
        views: what each layer really sees.
        num_logits: number of ids it can draft.
        target_hidden_size: width of the target's states.
        aux_layers: layers of the target whose inputs it reads; k is the output of layer k - 1.
        block_size: tokens of a block it was trained with, the last committed one included.
        mask_id: stands for tokens that are not known yet.
        predicts_at_anchor: whether the row of the last committed token predicts the one after it, and each mask's row the one
            after it; else a mask's row predicts its own token (`sample_from_anchor`).
        logit_softcap: logits are `cap * tanh(logits / cap)`.
        logit_scale: factor on the logits.
        stage: what corrects guesses by the tokens before them.
        convolution: sizes of the convolutions in its layers.
    """

    layer_config: Qwen3Config
    views: tuple[View, ...]
    num_logits: int
    target_hidden_size: int
    aux_layers: tuple[int, ...]
    block_size: int
    mask_id: int
    predicts_at_anchor: bool = False
    logit_softcap: float | None = None
    logit_scale: float = 1.0
    stage: StageSettings | None = None
    convolution: ConvolutionSettings | None = None

    @property
    def max_tokens(self) -> int:
        """Most tokens of a draft."""
        return self.block_size if self.predicts_at_anchor else self.block_size - 1

    @classmethod
    def from_dict(
        cls,
        config: Mapping[str, Any],
        origin: str,
        *,
        num_layers: int,
        aux_layers: tuple[int, ...] | None = None,
        mask_id: int | None = None,
        predicts_at_anchor: bool | None = None,
    ) -> DFlashSettings:
        """Read a published configuration: the flat one of z-lab, ModelOpt, SpecForge and DeepSpec, some with a
        `dflash_config`, or the speculators format.

        Args:
            config: contents of `config.json`.
            origin: location named in errors.
            num_layers: number of the target's layers.
            aux_layers: other layers than it names.
            mask_id: another mask token than it names.
            predicts_at_anchor: whether the last committed token's row predicts, whatever it says.

        Raises:
            ModelError: if it does not describe a head that this package supports.
        """
        nested = config.get(_SPECULATORS)
        is_speculators = isinstance(nested, Mapping)
        layer: dict[str, Any] = dict(nested) if isinstance(nested, Mapping) else dict(config)
        inner = config.get("dflash_config")
        more = {**layer, **config, **(inner if isinstance(inner, Mapping) else {})}
        for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
            size_of(layer, key, origin, _KIND)
        number_of(layer, "num_hidden_layers", origin, least=1, most=_MOST_LAYERS)
        layer_config = _layer_config(layer, origin)
        block_size = size_of(more, "block_size", origin, _KIND)
        mask_id = number_of(more, "mask_token_id", origin, least=0) if mask_id is None else mask_id
        if mask_id is None:
            raise ModelError(
                f"{origin}: it names no mask token: give mask_token_id in speculative_config, the id that the head was trained "
                "with"
            )
        family = family_of(config, (), origin)
        stage = read_stage(family, more, origin)
        if predicts_at_anchor is None:
            predicts_at_anchor = _predicts_at_anchor(family, more, origin, is_speculators=is_speculators)
        settings = cls(
            layer_config=layer_config,
            views=read_views(layer, more, origin, is_speculators=is_speculators),
            num_logits=number_of(more, "draft_vocab_size", origin, least=0) or layer_config.vocab_size,
            target_hidden_size=number_of(more, "target_hidden_size", origin, least=0)
            or layer_config.hidden_size,
            aux_layers=aux_layers or _aux_layers(more, origin, num_layers, is_speculators=is_speculators),
            block_size=block_size,
            mask_id=mask_id,
            predicts_at_anchor=predicts_at_anchor,
            logit_softcap=factor_of(more, "final_logit_softcapping", origin),
            logit_scale=factor_of(more, "logit_scale", origin) or 1.0,
            stage=stage,
            convolution=_convolution(family, more, layer_config.hidden_size, origin),
        )
        if settings.max_tokens < 1:
            raise ModelError(f"{origin}: block_size is {block_size}, which leaves no token to guess")
        if family == "dflash2" and settings.num_logits != layer_config.vocab_size:
            raise ModelError(
                f"{origin}: draft_vocab_size is {settings.num_logits}, and a DFlash2 head drafts all ids"
            )
        return settings


def default_layers(num_target_layers: int, num_layers: int) -> tuple[int, ...]:
    """Return the layers whose outputs a head of `num_layers` layers reads where its file names none, spread evenly
    (arXiv 2602.06036)."""
    if num_layers == 1:
        return (num_target_layers // 2,)
    span = num_target_layers - 4
    return tuple(round(1 + i * span / (num_layers - 1)) for i in range(num_layers))


def _aux_layers(
    more: Mapping[str, Any], origin: str, num_layers: int, *, is_speculators: bool
) -> tuple[int, ...]:
    """Return the layers whose inputs are read: `target_layer_ids` count outputs, those of the speculators format inputs."""
    if is_speculators:
        found = ids_of(more, "aux_hidden_state_layer_ids", origin)
        if found is None:
            raise ModelError(
                f"{origin}: aux_hidden_state_layer_ids is missing: give aux_layer_ids in speculative_config"
            )
        ids = found
    else:
        outputs = ids_of(more, "target_layer_ids", origin)
        if outputs is None:
            count = number_of(more, "num_target_layers", origin, least=4) or num_layers
            outputs = default_layers(count, more["num_hidden_layers"])
        ids = tuple(k + 1 for k in outputs)
        beside = ids_of(more, "eagle_aux_hidden_state_layer_ids", origin)
        if beside not in (None, ids):
            raise ModelError(
                f"{origin}: target_layer_ids {list(outputs)} are the outputs {list(ids)}, and eagle_aux_hidden_state_layer_ids "
                f"says {list(beside or ())}: give aux_layer_ids in speculative_config"
            )
    named = more.get("num_target_layers", num_layers)
    if named != num_layers or not all(0 <= k <= num_layers for k in ids):
        raise ModelError(
            f"{origin}: it reads the outputs of layers {[k - 1 for k in ids]} of {named}, and the target has {num_layers} "
            "layers: it is a head of another target"
        )
    return ids


def _predicts_at_anchor(family: str, more: Mapping[str, Any], origin: str, *, is_speculators: bool) -> bool:
    """Return whether the last committed token's row predicts: Domino says so by `shift_label`, DSpark is trained so, and
    speculators writes it down since it can do both."""
    is_usual = family == "dspark" and not is_speculators
    if family == "dspark" and is_speculators and more.get("sample_from_anchor") is None:
        logger.warning(
            "%s: a DSpark head without sample_from_anchor; its last token's row is taken to predict nothing, as vLLM reads it, "
            "and predicts if the head was trained with the default of speculators 0.9: specdec check-head tells",
            origin,
        )
    if family == "domino":
        is_usual = flag_of(more, "shift_label", origin)
    return flag_of(more, "sample_from_anchor", origin, is_usual)


def _convolution(
    family: str, more: Mapping[str, Any], hidden_size: int, origin: str
) -> ConvolutionSettings | None:
    if family != "dflash2":
        return None
    found = ConvolutionSettings(
        *(size_of(more, f"conv_{key}", origin, "a DFlash2 head") for key in ("kernel_size", "group_size"))
    )
    if hidden_size % found.group_size:
        raise ModelError(
            f"{origin}: conv_group_size is {found.group_size}, of a head that is {hidden_size} wide"
        )
    return found


def _layer_config(layer: Mapping[str, Any], origin: str) -> Qwen3Config:
    """Return the configuration of the decoder layers, without windows."""
    from transformers import Qwen3Config, Qwen3Model  # takes a second: not before there is a head

    known = {key: value for key, value in layer.items() if key not in _NOT_OF_LAYERS}
    try:
        config = Qwen3Config(**known)
        with torch.device("meta"):
            Qwen3Model(config)
    except Exception as error:  # its checks of fields and its layers raise errors of many types
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"{origin}: transformers has no layers for this configuration ({reason})") from None
    return config
