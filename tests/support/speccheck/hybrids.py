"""Tiny models with random weights whose layers keep recurrent or convolution states, most of them beside attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers as hf
from transformers import PretrainedConfig, PreTrainedModel

from speccheck.models import BASE, VOCAB, WINDOW, make

_BASE: dict[str, Any] = BASE | {"num_hidden_layers": 3}
_DELTA: dict[str, Any] = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "head_dim": 8,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}
_EXPERTS: dict[str, Any] = {
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
}
_MAMBA_2: dict[str, Any] = {
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_chunk_size": 8,
}
_SHORT_CONVOLUTIONS: dict[str, Any] = {"layer_types": ["conv", "full_attention", "conv"]}
_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "moe_intermediate_size": 16,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
}

HYBRIDS: dict[str, Callable[[], PretrainedConfig]] = {
    "qwen3_next": lambda: hf.Qwen3NextConfig(**_BASE | _DELTA | _EXPERTS),
    "qwen3_5": lambda: hf.Qwen3_5TextConfig(**_BASE | _DELTA),
    "qwen3_5_moe": lambda: hf.Qwen3_5MoeTextConfig(**_BASE | _DELTA | _EXPERTS),
    "olmo_hybrid": lambda: hf.OlmoHybridConfig(
        **{k: v for k, v in (_BASE | _DELTA).items() if k != "head_dim"}
    ),
    "lfm2": lambda: hf.Lfm2Config(**_BASE | _SHORT_CONVOLUTIONS, block_multiple_of=16),
    "lfm2_moe": lambda: hf.Lfm2MoeConfig(
        **_BASE | _SHORT_CONVOLUTIONS,
        num_dense_layers=1,
        moe_intermediate_size=16,
        num_experts=4,
        num_experts_per_tok=2,
    ),
    "lfm3": lambda: hf.Lfm3Config(
        **_BASE, head_dim=8, sliding_window=WINDOW, layer_types=["conv", "sliding_attention", "conv"]
    ),
    "bamba": lambda: hf.BambaConfig(**_BASE | _MAMBA_2, attn_layer_indices=[1]),
    "granite_hybrid": lambda: hf.GraniteMoeHybridConfig(
        **_BASE | _MAMBA_2,
        layer_types=["mamba", "attention", "mamba"],
        num_local_experts=4,
        num_experts_per_tok=2,
        shared_intermediate_size=16,
        attention_multiplier=0.3,
        logits_scaling=2.0,
    ),
    "falcon_h1": lambda: hf.FalconH1Config(**_BASE | _MAMBA_2, mamba_d_ssm=64),
    "nemotron_h": lambda: hf.NemotronHConfig(
        **{k: v for k, v in _BASE.items() if k != "num_hidden_layers"} | {"head_dim": 8},
        layers_block_type=["mamba", "moe", "attention", "mamba", "mlp"],
        ssm_state_size=8,
        mamba_num_heads=4,
        mamba_head_dim=16,
        n_groups=2,
        chunk_size=8,
        n_routed_experts=4,
        moe_intermediate_size=16,
        moe_shared_expert_intermediate_size=16,
    ),
    "jamba": lambda: hf.JambaConfig(
        **_BASE,
        num_experts=4,
        attn_layer_period=3,
        attn_layer_offset=1,
        mamba_d_state=8,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
    ),
    "zamba": lambda: hf.ZambaConfig(
        **_BASE | {"num_key_value_heads": 4, "num_hidden_layers": 6},
        attn_layer_period=3,
        attn_layer_offset=1,
        layers_block_type=["mamba", "mamba", "hybrid", "mamba", "mamba", "hybrid"],
        mamba_d_state=8,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
    ),
    "zamba2": lambda: hf.Zamba2Config(
        **_BASE | {"num_key_value_heads": 4, "num_hidden_layers": 6},
        layers_block_type=["mamba", "hybrid", "mamba", "hybrid", "mamba", "hybrid"],
        mamba_d_state=8,
        n_mamba_heads=4,
        chunk_size=8,
        use_mamba_kernels=False,
        num_mem_blocks=2,
        use_shared_attention_adapter=True,
        adapter_rank=4,
        use_mem_rope=True,
    ),
    "zaya": lambda: hf.ZayaConfig(
        **_BASE, head_dim=8, moe_intermediate_size=16, num_experts=4, router_hidden_size=16
    ),
    "kimi_linear": lambda: hf.KimiLinearConfig(
        **_BASE | _LATENT,
        linear_head_dim=8,
        linear_num_heads=4,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
    ),
    "bailing_hybrid": lambda: hf.BailingHybridConfig(
        **_BASE | _LATENT,
        head_dim=8,
        first_k_dense_replace=1,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
    ),
    "mamba": lambda: hf.MambaConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, state_size=8, eos_token_id=None
    ),
    "mamba2": lambda: hf.Mamba2Config(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        state_size=8,
        num_heads=4,
        head_dim=16,
        n_groups=2,
        chunk_size=8,
        eos_token_id=None,
    ),
    "falcon_mamba": lambda: hf.FalconMambaConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, state_size=8, eos_token_id=None
    ),
}

"""Models that are served."""

REFUSED: dict[str, Callable[[], PretrainedConfig]] = {
    "minimax": lambda: hf.MiniMaxConfig(
        **_BASE, num_local_experts=4, layer_types=["linear_attention", "full_attention", "linear_attention"]
    ),
    "recurrent_gemma": lambda: hf.RecurrentGemmaConfig(
        **{k: v for k, v in _BASE.items() if k != "max_position_embeddings"}, attention_window_size=WINDOW
    ),
}
"""Models that keep their states elsewhere."""


def hybrid(name: str) -> PreTrainedModel:
    """Return the tiny model of a name in `HYBRIDS` or `REFUSED`."""
    return make((HYBRIDS | REFUSED)[name](), seed=1 + sum(map(ord, name)))
