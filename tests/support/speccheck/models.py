"""Tiny models with random weights that make attention matter, so that a wrong mask or position changes the tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from transformers import PretrainedConfig, PreTrainedModel

VOCAB = 128
WINDOW = 16
"""Sliding window of the models that have one: shorter than most prompts of the tests."""
MAX_LEN = 160

BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_LEN,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
_MHA = {**BASE, "num_key_value_heads": 4}
_MIXED_LAYERS = ["sliding_attention", "full_attention"]


def _llama(**keys: Any) -> PretrainedConfig:
    return hf.LlamaConfig(**BASE | keys)


_EXPERTS: dict[str, Any] = {
    "moe_intermediate_size": 16, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
}  # fmt: skip
_LATENT: dict[str, Any] = {
    "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12,
}  # fmt: skip
_GPT: dict[str, Any] = {
    "vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": MAX_LEN, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip
CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "llama": _llama,
    "llama_rope_scaled": lambda: _llama(
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    ),
    "llama_yarn": lambda: _llama(
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 40,
        }
    ),
    "llama_biased": lambda: _llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "qwen2": lambda: hf.Qwen2Config(**BASE),
    "qwen2_window": lambda: hf.Qwen2Config(
        **BASE, use_sliding_window=True, sliding_window=WINDOW, layer_types=_MIXED_LAYERS
    ),
    "qwen3": lambda: hf.Qwen3Config(**BASE, head_dim=16),
    "mistral": lambda: hf.MistralConfig(**BASE, sliding_window=WINDOW),
    "mixtral": lambda: hf.MixtralConfig(
        **BASE, num_local_experts=4, num_experts_per_tok=2, sliding_window=None
    ),
    "gemma2": lambda: hf.Gemma2Config(
        **BASE,
        head_dim=8,
        sliding_window=WINDOW,
        query_pre_attn_scalar=8,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=10.0,
    ),
    "gemma3": lambda: hf.Gemma3TextConfig(
        **BASE, head_dim=8, sliding_window=WINDOW, query_pre_attn_scalar=8, layer_types=_MIXED_LAYERS
    ),
    "phi3": lambda: hf.Phi3Config(**BASE, sliding_window=WINDOW),
    "opt": lambda: hf.OPTConfig(**_MHA, ffn_dim=48, word_embed_proj_dim=32),
    "gpt2": lambda: hf.GPT2Config(**_GPT),
    "gpt_neox": lambda: hf.GPTNeoXConfig(
        **_MHA,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    ),
    "gpt_oss": lambda: hf.GptOssConfig(
        **BASE,
        head_dim=8,
        sliding_window=WINDOW,
        num_local_experts=4,
        num_experts_per_tok=2,
        layer_types=_MIXED_LAYERS,
    ),
    "deepseek_v3": lambda: hf.DeepseekV3Config(
        **_MHA | _EXPERTS | _LATENT,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
    ),
}
"""The models of the default run."""

MORE_CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "phi": lambda: hf.PhiConfig(**_MHA),
    "olmo": lambda: hf.OlmoConfig(**BASE),
    "olmo2": lambda: hf.Olmo2Config(**BASE),
    "olmo3": lambda: hf.Olmo3Config(**BASE, sliding_window=WINDOW, layer_types=_MIXED_LAYERS),
    "starcoder2": lambda: hf.Starcoder2Config(**BASE, sliding_window=WINDOW),
    "cohere": lambda: hf.CohereConfig(**BASE, logit_scale=0.5),
    "cohere2": lambda: hf.Cohere2Config(
        **BASE, sliding_window=WINDOW, layer_types=_MIXED_LAYERS, logit_scale=0.5
    ),
    "granite": lambda: hf.GraniteConfig(
        **BASE,
        attention_multiplier=0.3,
        residual_multiplier=0.4,
        logits_scaling=2.0,
        embedding_multiplier=3.0,
    ),
    "smollm3": lambda: hf.SmolLM3Config(**BASE, no_rope_layers=[1, 0]),
    "glm": lambda: hf.GlmConfig(**BASE, head_dim=8),
    "glm4": lambda: hf.Glm4Config(**BASE, head_dim=8),
    "qwen2_moe": lambda: hf.Qwen2MoeConfig(
        **BASE,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        num_experts=4,
        num_experts_per_tok=2,
    ),
    "qwen3_moe": lambda: hf.Qwen3MoeConfig(
        **BASE | {"head_dim": 8}, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2
    ),
    "gemma": lambda: hf.GemmaConfig(**BASE, head_dim=8),
    "gemma4": lambda: hf.Gemma4TextConfig(
        **BASE,
        head_dim=8,
        global_head_dim=16,
        num_global_key_value_heads=1,
        attention_k_eq_v=True,
        num_kv_shared_layers=0,
        hidden_size_per_layer_input=0,
        final_logit_softcapping=10.0,
        sliding_window=WINDOW,
        layer_types=_MIXED_LAYERS,
    ),
    "nemotron": lambda: hf.NemotronConfig(**BASE),
    "exaone4": lambda: hf.Exaone4Config(**BASE, sliding_window=WINDOW, layer_types=_MIXED_LAYERS),
    "seed_oss": lambda: hf.SeedOssConfig(**BASE, head_dim=8),
    "helium": lambda: hf.HeliumConfig(**BASE, head_dim=8),
    "arcee": lambda: hf.ArceeConfig(**BASE),
    "apertus": lambda: hf.ApertusConfig(**BASE),
    "ernie4_5": lambda: hf.Ernie4_5Config(**BASE, head_dim=8),
    "hunyuan": lambda: hf.HunYuanDenseV1Config(**BASE, head_dim=8),
    "gpt_bigcode": lambda: hf.GPTBigCodeConfig(**_GPT),
    "phimoe": lambda: hf.PhimoeConfig(
        **BASE, num_local_experts=4, num_experts_per_tok=2, sliding_window=WINDOW
    ),
    "deepseek_v2": lambda: hf.DeepseekV2Config(
        **_MHA | _EXPERTS | _LATENT,
        first_k_dense_replace=1,
        topk_method="greedy",
    ),
    "glm4_moe": lambda: hf.Glm4MoeConfig(
        **BASE | {"head_dim": 8} | _EXPERTS,
        first_k_dense_replace=1,
        use_qk_norm=True,
    ),
    "glm4_moe_lite": lambda: hf.Glm4MoeLiteConfig(
        **_MHA | _EXPERTS | _LATENT,
    ),
    "minimax_m2": lambda: hf.MiniMaxM2Config(**BASE, head_dim=8, num_local_experts=4, num_experts_per_tok=2),
    "ernie4_5_moe": lambda: hf.Ernie4_5_MoeConfig(
        **BASE, moe_intermediate_size=16, moe_k=2, moe_num_experts=4, moe_num_shared_experts=1
    ),
    "olmoe": lambda: hf.OlmoeConfig(**BASE, num_experts=4, num_experts_per_tok=2),
    "granitemoe": lambda: hf.GraniteMoeConfig(
        **BASE, num_local_experts=4, num_experts_per_tok=2, attention_multiplier=0.3, logits_scaling=2.0
    ),
    "ministral3": lambda: hf.Ministral3Config(
        **BASE,
        head_dim=8,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 40,
            "llama_4_scaling_beta": 0.1,
        },
    ),
    "llama4": lambda: hf.Llama4TextConfig(
        **BASE,
        head_dim=8,
        intermediate_size_mlp=48,
        num_local_experts=2,
        interleave_moe_layer_step=2,
        attention_chunk_size=2 * MAX_LEN,
        no_rope_layers=[1, 0],
        attn_temperature_tuning=True,
        attn_scale=4.0,
        floor_scale=16,
    ),
    "dots1": lambda: hf.Dots1Config(
        **BASE | {"head_dim": 8} | _EXPERTS,
        first_k_dense_replace=1,
    ),
}
"""More of them, for the full run."""


def make(config: PretrainedConfig, seed: int = 0, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Return a model whose scores are far apart: weights of unit gain, sharp attention, spread logits."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(
            seed
        )  # `sharpen` keeps some of what is drawn here, such as the decays of recurrent layers
        model: PreTrainedModel = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    sharpen(model, seed)
    if model.generation_config is not None:
        model.generation_config.eos_token_id = None
        model.generation_config.pad_token_id = 0
    torch.nn.Module.to(model, dtype)
    model.eval()
    return model


def sharpen(model: PreTrainedModel, seed: int) -> None:
    """Draw all weights anew, large enough that every part of the model counts."""
    generator = torch.Generator().manual_seed(seed)
    head = model.get_output_embeddings()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1:
                if name.endswith("bias") or "sinks" in name:
                    parameter.copy_(0.3 * noise)
                else:
                    parameter.add_(0.1 * noise)
                continue
            if "embed" in name or "wte" in name or "wpe" in name:
                gain = 0.7
            else:
                gain = parameter.shape[-1] ** -0.5
                if any(
                    part in name for part in ("q_proj", "k_proj", "qkv", "query_key", "c_attn", "q_b", "kv_b")
                ):
                    gain *= 2.0
            parameter.copy_(gain * noise)
        if head is not None and head.weight is not model.get_input_embeddings().weight:
            head.weight.mul_(3.0)


def tiny(name: str) -> PreTrainedModel:
    """Return the tiny model of a name in `CONFIGS` or `MORE_CONFIGS`."""
    config = (CONFIGS | MORE_CONFIGS)[name]()
    return make(config, seed=sum(map(ord, name)))


def few_ids(vocab: int, *, flatness: float, end: int | None = None) -> PreTrainedModel:
    """Return a model of a few ids, each of which has a fair share, for laws that are enumerated.

    Args:
        vocab: number of ids.
        flatness: factor of its logits.
        end: its end of text, if it has one.
    """
    config = hf.LlamaConfig(
        vocab_size=vocab, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=32, bos_token_id=None, eos_token_id=end,
    )  # fmt: skip
    made = make(config, seed=6)
    with torch.no_grad():
        made.lm_head.weight.mul_(flatness)
    return made


def copied(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy for an engine: engines change the attention and the layout of the weights of what they get."""
    return copy.deepcopy(model)


def prompts(lengths: list[int], seed: int = 0, vocab: int = VOCAB) -> list[list[int]]:
    """Return random prompts."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, vocab, (length,), generator=generator).tolist() for length in lengths]
