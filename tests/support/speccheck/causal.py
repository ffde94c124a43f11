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
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input", "decoder_vocab_size"), VOCAB),
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
_OWN: dict[str, dict[str, Any]] = {
    "axk1": _MHA,
    "minicpm3": _MHA,
    "youtu": _MHA,
    "cwm": {"bos_token_id": 0},
    "dots3_note_text": _MHA,
    "gemma3n_text": {"num_kv_shared_layers": 0, "layer_types": _MIXED_LAYERS},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": WINDOW},
    "modernbert-decoder": {
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2,
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
    keys = {key: value for key, value in _SMALL.items() if key in known}
    for key, part in getattr(kind, "sub_configs", {}).items():
        if key in known and part is not None and part in CONFIG_MAPPING.values():
            keys[key] = small(part, {})
    return kind(**keys | own)


def class_name(name: str) -> str:
    """Return the name of the causal class of a `model_type`."""
    return MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[name]].__name__


def configured() -> dict[str, Callable[[], PretrainedConfig]]:
    """Return the configurations of other tests by `model_type`; of several the last, which has more to it."""
    sources = (models.CONFIGS, models.MORE_CONFIGS, HYBRIDS, ELSEWHERE, multimodal.SERVED)
    return {make().model_type: make for source in sources for make in source.values()}
