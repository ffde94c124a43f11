"""A tiny configuration for every causal class of the installed `transformers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from speccheck import models, multimodal
from speccheck.hybrids import HYBRIDS
from speccheck.hybrids import REFUSED as ELSEWHERE
from speccheck.models import _MIXED_LAYERS, MAX_LEN, VOCAB, WINDOW

NAMES = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
"""Each `model_type` with a causal class."""

_SMALL: dict[str, Any] = {
    # vocabulary and lengths
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input", "decoder_vocab_size", "unpadded_vocab_size"), VOCAB),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "context_length"), MAX_LEN),
    **dict.fromkeys(("max_source_positions", "max_target_positions"), MAX_LEN),
    **dict.fromkeys(("sliding_window", "sliding_window_size", "local_attention", "attention_window_size"), WINDOW),
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id", "cls_token_id", "sep_token_id"), None),
    # widths
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "emb_dim", "embedding_size", "hidden_size_global"), 32),
    **dict.fromkeys(("input_embedding_size", "output_embedding_size", "dim_model_base", "embedding_dim"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "dff", "d_inner", "dim_ff", "ffn_hidden_size"), 48),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "feed_forward_size", "dense_intermediate_size"), 48),
    **dict.fromkeys(("moe_intermediate_size", "shared_intermediate_size", "expert_ffn_hidden_size"), 16),
    **dict.fromkeys(("shared_expert_intermediate_size", "prefix_dense_intermediate_size"), 16),
    "hidden_size_per_layer_input": 8,
    # layers and heads
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "attention_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "swa_num_attention_heads"), 4),
    **dict.fromkeys(("num_encoder_attention_heads", "num_decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads"), 2),
    **dict.fromkeys(("head_dim", "swa_head_dim", "d_head", "kv_channels", "dim_head", "attention_head_size"), 8),
    **dict.fromkeys(("rotary_dim", "index_head_dim", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "o_lora_rank", "gated_norm_rank"), 16),
    # experts and indices
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_top_k", "moe_topk", "moe_k"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "num_shared_experts"), 1),
    **dict.fromkeys(("index_n_heads", "zero_expert_num", "laurel_rank"), 2),
    "index_topk": WINDOW,
    "first_k_dense_replace": 1,
    # decoders that are encoders by default
    "is_decoder": True,
    "tie_word_embeddings": False,
}  # fmt: skip
"""Values of fields, wherever a configuration has them."""

_MHA = {"num_key_value_heads": 4}
_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_LINEAR = {"layer_types": ["linear_attention", "full_attention"]}
_INDEXED: dict[str, Any] = {
    "layer_types": ["linear_attention", "indexed_attention"],
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 8,
    "indexer_budget": WINDOW,
    "indexer_compress_ratio": 2,
}
_AUDIO = {"num_mel_bins": 8, "max_source_positions": 16}
_VISION = {"image_size": 32, "patch_size": 16, "depth": 2}
_OWN: dict[str, dict[str, Any]] = {
    "axk1": _MHA,
    "minicpm3": _MHA,
    "sarvam_mla": _MHA,
    "youtu": _MHA,
    "blt": {"encoder_hash_byte_group_vocab": 64, "encoder_hash_byte_group_size": [3, 4]},
    "cohere_compass_text": {
        "layer_types": _MIXED_LAYERS,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": 10000.0} for kind in _MIXED_LAYERS},
    },
    "cwm": {"bos_token_id": 0},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0}},
    "dots3_note": {
        "text_config": _MHA, "audio_config": {"adapter_input_size": 32, "adapter_out_dim": 32},
        "vision_config": {"pyramid_num_routed": [-1, -1], "adapter_in_dim": 32, "adapter_out_dim": 32},
    },
    "dots3_note_text": _MHA,
    "emu3": {"text_config": _IDS},
    "gemma3n": {"text_config": {"num_kv_shared_layers": 0, "layer_types": _MIXED_LAYERS}},
    "gemma3n_text": {"num_kv_shared_layers": 0, "layer_types": _MIXED_LAYERS},
    "gemma4_assistant": {
        "text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "layer_types": _MIXED_LAYERS}
    },
    "gemma4_unified_assistant": {"text_config": {"layer_types": _MIXED_LAYERS}},
    "got_ocr2": {"vision_config": _VISION | {"mlp_dim": 48, "output_channels": 16, "global_attn_indexes": [1]}},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": WINDOW},
    "mllama": {"text_config": _IDS | {"cross_attention_layers": [1]}},
    "modernbert-decoder": _IDS | {"cls_token_id": 1, "sep_token_id": 2},
    "moss_transcribe_diarize": {"audio_config": _AUDIO},
    "moshi": {"sliding_window": MAX_LEN},
    "persimmon": {"hidden_size": 64},
    "phi4_multimodal": {"vision_config": _VISION, "audio_config": {"nemo_conv_channels": 16, "num_blocks": 1}},
    "qwen3_5_moe": {"text_config": _LINEAR},
    "qwen4_exp": {"text_config": _INDEXED},
    "qwen4_exp_text": _INDEXED,
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "lsh"], "num_buckets": 2},
    "roc_bert": {
        "pronunciation_vocab_size": 16, "pronunciation_embed_dim": 4, "shape_vocab_size": 16, "shape_embed_dim": 4,
        "intermediate_size": 128,
    },
}  # fmt: skip
"""Further values, by `model_type`."""

_OTHERS: dict[str, Callable[[], PretrainedConfig]] = {}
"""Configurations that are made otherwise, by `model_type`."""


def tiny_config(name: str) -> PretrainedConfig:
    """Return the tiny configuration of a `model_type`: one that other tests use, else the default made small."""
    for known in (_OTHERS, configured()):
        if name in known:
            return known[name]()
    return small(CONFIG_MAPPING[name], _OWN.get(name, {}))


def small(kind: type[PretrainedConfig], own: dict[str, Any]) -> PretrainedConfig:
    """Return a configuration with the values of `_SMALL`, and those of its parts made small too."""
    known = {field.name for field in fields(kind)}
    keys = {key: value for key, value in _SMALL.items() if key in known} | own
    for key, part in kind.sub_configs.items():
        named = getattr(getattr(kind, "sub_configs_defaults", {}).get(key), "model_type", None)
        keys[key] = small(part if named is None else CONFIG_MAPPING[named], own.get(key, {}))
    return kind(**keys)


def class_name(name: str) -> str:
    """Return the name of the causal class of a `model_type`."""
    return MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[name]].__name__


def configured() -> dict[str, Callable[[], PretrainedConfig]]:
    """Return the configurations of other tests by `model_type`; of several the last, which has more to it."""
    sources = (models.CONFIGS, models.MORE_CONFIGS, HYBRIDS, ELSEWHERE, multimodal.SERVED)
    return {make().model_type: make for source in sources for make in source.values()}
