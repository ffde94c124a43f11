"""MiMo's layout."""

from specdec_plugin_mtp.layouts.layout import Layout

MIMO = Layout(
    family="MiMo",
    model_types=("mimo", "qwen2"),
    prefixes=("model.mtp_layers.{i}.",),
    join="model.mtp_layers.{i}.input_proj",
    embed_norm="model.mtp_layers.{i}.token_layernorm",
    feature_norm="model.mtp_layers.{i}.hidden_layernorm",
    block="model.mtp_layers.{i}.",
    norm="model.mtp_layers.{i}.final_layernorm",
    is_feature_first=True,
    block_type="qwen2",
)
"""MiMo-7B (arXiv 2505.07608): `input_proj([hidden_layernorm(state); token_layernorm(embedding)])`, the state first, then a
Qwen2 layer, like MiMo's own layers."""
