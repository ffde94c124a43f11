"""The layout of DeepSeek-V3, GLM-4.5, and other targets with such layers, such as Llama."""

from specdec_plugin_mtp.layouts.layout import Layout

DEEPSEEK = Layout(
    family="DeepSeek",
    model_types=("deepseek_v3", "glm4_moe", "glm4_moe_lite", "llama", "mistral", "qwen2", "qwen3"),
    prefixes=("model.layers.{n}.",),
    join="model.layers.{n}.eh_proj",
    embed_norm="model.layers.{n}.enorm",
    feature_norm="model.layers.{n}.hnorm",
    block="model.layers.{n}.",
    norm="model.layers.{n}.shared_head.norm",
    embed_tokens="model.layers.{n}.embed_tokens",
    lm_head="model.layers.{n}.shared_head.head",
)
"""Layers after the target's own (DeepSeek-V3, arXiv 2412.19437): `eh_proj([enorm(embedding); hnorm(state)])`, then a decoder
layer of the target's family, an MoE layer in families that have them."""
