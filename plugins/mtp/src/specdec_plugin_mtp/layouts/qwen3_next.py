"""The layout of Qwen3-Next and Qwen3.5."""

from specdec_plugin_mtp.layouts.layout import Layout

QWEN3_NEXT = Layout(
    family="Qwen3-Next",
    model_types=("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
    prefixes=("mtp.",),
    join="mtp.fc",
    embed_norm="mtp.pre_fc_norm_embedding",
    feature_norm="mtp.pre_fc_norm_hidden",
    block="mtp.layers.{i}.",
    norm="mtp.norm",
    attention_type="full_attention",
)
"""Qwen3-Next and Qwen3.5: `fc([pre_fc_norm_embedding(embedding); pre_fc_norm_hidden(state)])`, then layer `step % n` with
full, gated attention, then `norm`; everything but the layers is shared. The family's norms scale by one plus their weight."""
