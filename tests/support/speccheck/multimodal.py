"""Tiny multimodal models with random weights: a text part that makes attention matter beside a tower that is never run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers as hf
from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.gemma4 import Gemma4VisionConfig
from transformers.models.llama4 import Llama4VisionConfig

from speccheck.models import _MIXED_LAYERS, BASE, MAX_LEN, VOCAB, WINDOW, sharpen

PLACEHOLDER = VOCAB + 7
"""Token id of an image: none that a model of text says."""

_TOWER: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "image_size": 28, "patch_size": 14,
}  # fmt: skip
_QWEN_TOWER = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}


def _gemma3(**keys: Any) -> PretrainedConfig:
    text = hf.Gemma3TextConfig(
        **BASE | keys, head_dim=8, sliding_window=WINDOW, query_pre_attn_scalar=8, layer_types=_MIXED_LAYERS
    )
    return hf.Gemma3Config(
        text_config=text, vision_config=hf.SiglipVisionConfig(**_TOWER), mm_tokens_per_image=4,
        image_token_index=PLACEHOLDER, tie_word_embeddings=text.tie_word_embeddings,
    )  # fmt: skip


def _gemma4(**keys: Any) -> PretrainedConfig:
    text = hf.Gemma4TextConfig(
        **BASE | {"num_hidden_layers": 4, "pad_token_id": 0, "layer_types": _MIXED_LAYERS * 2} | keys,
        head_dim=8, global_head_dim=16, sliding_window=WINDOW,
    )  # fmt: skip
    tower = {key: value for key, value in _TOWER.items() if key not in ("image_size", "patch_size")}
    return hf.Gemma4Config(
        text_config=text, audio_config=None, image_token_id=PLACEHOLDER, tie_word_embeddings=False,
        vision_config=Gemma4VisionConfig(**tower, num_key_value_heads=2, head_dim=8),
    )  # fmt: skip


def _gemma4_unified() -> PretrainedConfig:
    text = hf.Gemma4UnifiedTextConfig(
        **BASE | {"pad_token_id": 0, "layer_types": _MIXED_LAYERS}, head_dim=8, global_head_dim=16, sliding_window=WINDOW
    )  # fmt: skip
    return hf.Gemma4UnifiedConfig(
        text_config=text, audio_config=None, image_token_id=PLACEHOLDER, tie_word_embeddings=False,
        vision_config=hf.Gemma4UnifiedVisionConfig(
            patch_size=4, mm_embed_dim=16, mm_posemb_size=16, output_proj_dims=32
        ),
    )  # fmt: skip


def _mistral3(text: PretrainedConfig) -> PretrainedConfig:
    return hf.Mistral3Config(
        text_config=text, vision_config=hf.PixtralVisionConfig(**_TOWER), image_token_index=PLACEHOLDER,
        tie_word_embeddings=False,
    )  # fmt: skip


def _llama4() -> PretrainedConfig:
    tower = Llama4VisionConfig(
        **_TOWER | {"intermediate_size": 64}, vision_output_dim=16, projector_input_dim=16, projector_output_dim=16
    )  # fmt: skip
    text = hf.Llama4TextConfig(
        **BASE, head_dim=8, intermediate_size_mlp=48, num_local_experts=2, interleave_moe_layer_step=2,
        attention_chunk_size=2 * MAX_LEN, no_rope_layers=[1, 0], attn_temperature_tuning=False,
    )  # fmt: skip
    return hf.Llama4Config(
        text_config=text, vision_config=tower, image_token_index=PLACEHOLDER, tie_word_embeddings=False
    )


def _qwen3_5() -> PretrainedConfig:
    text = {**BASE, "head_dim": 8, "layer_types": ["linear_attention", "full_attention"]}
    return hf.Qwen3_5Config(text_config=text, vision_config=_QWEN_TOWER, image_token_id=PLACEHOLDER)


def _shared() -> dict[str, Any]:
    """Return what the small Gemma 4 models have: tables of embeddings for each layer, and layers that read others' keys."""
    return {
        "vocab_size_per_layer_input": VOCAB, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 2,
    }  # fmt: skip


def _experts() -> dict[str, Any]:
    """Return what Gemma 4's mixture of experts has; its global layers take their keys as values."""
    return {
        "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "enable_moe_block": True, "num_experts": 4,
        "top_k_experts": 2, "moe_intermediate_size": 16, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
    }  # fmt: skip


SERVED: dict[str, Callable[[], PretrainedConfig]] = {
    "gemma3": _gemma3,
    "gemma3_tied": lambda: _gemma3(tie_word_embeddings=True),
    "gemma4_small": lambda: _gemma4(**_shared()),
    "gemma4_dense": lambda: _gemma4(hidden_size_per_layer_input=0, num_kv_shared_layers=0),
    "gemma4_experts": lambda: _gemma4(**_experts()),
    "gemma4_unified": _gemma4_unified,
    "mistral3": lambda: _mistral3(hf.MistralConfig(**BASE, sliding_window=None, head_dim=8)),
    "ministral3": lambda: _mistral3(
        hf.Ministral3Config(
            **BASE,
            head_dim=8,
            rope_parameters={
                "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                "original_max_position_embeddings": 40, "llama_4_scaling_beta": 0.1,
            },
        )
    ),
    "llama4": _llama4,
    "qwen3_5": _qwen3_5,
    "llava": lambda: hf.LlavaConfig(
        text_config=hf.LlamaConfig(**BASE), vision_config=hf.CLIPVisionConfig(**_TOWER),
        image_token_index=PLACEHOLDER, tie_word_embeddings=False,
    ),
}  # fmt: skip
REFUSED: dict[str, tuple[Callable[[], PretrainedConfig], str]] = {
    "qwen3_vl": (
        lambda: hf.Qwen3VLConfig(
            text_config={**BASE, "head_dim": 8}, vision_config=_QWEN_TOWER, image_token_id=PLACEHOLDER
        ),
        r"no class for its language model \('qwen3_vl_text'\) alone",
    ),
    "paligemma": (  # attends to the whole prompt in both directions
        lambda: hf.PaliGemmaConfig(
            text_config=hf.Gemma2Config(**BASE, head_dim=8), image_token_index=PLACEHOLDER,
            vision_config=hf.SiglipVisionConfig(**_TOWER, projection_dim=32),
        ),
        "Gemma2ForCausalLM gives other logits for text than PaliGemmaForConditionalGeneration",
    ),
}  # fmt: skip


def whole(config: PretrainedConfig, seed: int = 0) -> PreTrainedModel:
    """Return the multimodal model of a configuration, in float32."""
    model: PreTrainedModel = hf.AutoModelForMultimodalLM.from_config(config, attn_implementation="eager")
    sharpen(model, seed)
    if model.generation_config is not None:
        model.generation_config.pad_token_id = 0
    return model.eval()
