"""The layout of layers that the speculators library trains."""

from specdec_plugin_mtp.layouts.layout import Layout

SPECULATORS = Layout(
    family="speculators",
    model_types=("qwen3", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
    prefixes=("mtp_layers.",),
    join="mtp_layers.{i}.input_proj",
    embed_norm="mtp_layers.{i}.token_layernorm",
    feature_norm="mtp_layers.{i}.hidden_layernorm",
    block="mtp_layers.{i}.",
    norm="mtp_layers.{i}.final_layernorm",
    attention_type="full_attention",
    reads_unnormed=True,
)
"""speculators 0.9 (FastMTP, arXiv 2509.18362): `input_proj([token_layernorm(embedding); hidden_layernorm(state)])`, a layer of
the target's family, `final_layernorm`, whose output is the next state. Its training reads the output of the target's last
layer, before the final norm."""
