"""ERNIE 4.5's layout."""

from specdec_plugin_mtp.layouts.layout import Layout

ERNIE = Layout(
    family="ERNIE",
    model_types=("ernie4_5_moe",),
    prefixes=("model.mtp_",),
    join="model.mtp_linear_proj.{i}",
    embed_norm="model.mtp_emb_norm.{i}",
    feature_norm="model.mtp_hidden_norm.{i}",
    block="model.mtp_block.{i}.",
    norm="model.norm",
    reads_unnormed=True,
    carries_unnormed=True,
    has_llama_rotary=False,
)
"""ERNIE 4.5 MoE: `mtp_linear_proj([mtp_emb_norm(embedding); mtp_hidden_norm(state)])`, then a dense layer of the family, whose
rotary embedding rotates adjacent pairs. It has no final norm of its own: training applies the target's to its output.
The state is the one before the target's final norm, as ERNIEKit and PaddleFormers train it."""
