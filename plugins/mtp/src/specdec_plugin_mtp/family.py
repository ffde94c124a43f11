"""Creates decoder layers and norms of the target's family for the head."""

from __future__ import annotations

import copy

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, PretrainedConfig

from specdec import ModelError
from specdec_plugin_mtp.layouts import Layout


class Family:
    """Layers, norms and rotary embedding of one architecture of `transformers`.

    Args:
        config: the target's configuration.
        layout: defines the differences from the target's layers.
        num_layers: number of layers to create; their `layer_idx` starts at 0.
        is_sparse: whether they are MoE layers, in families that have them.

    Raises:
        ModelError: if `transformers` has no such layers.
    """

    def __init__(self, config: PretrainedConfig, layout: Layout, num_layers: int, *, is_sparse: bool) -> None:
        wanted = layer_config(config, layout, num_layers, is_sparse=is_sparse)
        try:
            base = AutoModel.from_config(wanted, attn_implementation="eager")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(
                f"transformers cannot make {layout.family} layers for model_type {wanted.model_type!r} ({error})"
            ) from None
        self.config: PretrainedConfig = base.config
        self.layers: nn.ModuleList = base.layers
        self._norm_class: type[nn.Module] = type(base.norm)
        # The rotary factors are computed, not loaded, so they are needed even if weights are on the meta device.
        with torch.device("cpu"):
            self.rotary: nn.Module = type(base.rotary_emb)(config=base.config)

    def make_norm(self) -> nn.Module:
        """Return a norm over H."""
        return self._norm_class(self.config.hidden_size, eps=self.config.rms_norm_eps)


def layer_config(
    config: PretrainedConfig, layout: Layout, num_layers: int, *, is_sparse: bool
) -> PretrainedConfig:
    """Return the configuration of the layers: the target's, with all layer-dependent entries set for these layers.

    Arguments as for `Family`.
    """
    text = config.get_text_config()
    if layout.block_type is not None and text.model_type != layout.block_type:
        known = {
            k: v for k, v in text.to_dict().items() if k not in ("model_type", "architectures", "auto_map")
        }
        result: PretrainedConfig = AutoConfig.for_model(layout.block_type, **known)
    else:
        result = copy.deepcopy(text)
    result.num_hidden_layers = num_layers
    result.vocab_size, result.tie_word_embeddings, result.pad_token_id = 1, False, None
    kinds = getattr(result, "layer_types", None)
    if kinds:
        result.layer_types = [layout.attention_type or kinds[-1]] * num_layers
    numbers = list(range(num_layers))
    by_number = {
        "mlp_layer_types": ["sparse" if is_sparse else "dense"] * num_layers,
        "first_k_dense_replace": 0 if is_sparse else num_layers,
        "moe_layer_start_index": 0 if is_sparse else num_layers,
        "moe_layer_end_index": num_layers - 1,
        "moe_layer_interval": 1,
        "mlp_only_layers": [] if is_sparse else numbers,
        "decoder_sparse_step": 1,
    }
    for key, value in by_number.items():
        if getattr(result, key, None) is not None:
            setattr(result, key, value)
    return result
