"""A tiny target with random weights, for checks that do not need meaningful text."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from specdec.config import ZOO

TINY = "tiny"
"""The value of `model` for the tiny target."""
DEFAULT_MODEL = ZOO if find_spec("specdec_zoo") is not None else TINY
"""The default target: the zoo's, or the tiny one if the zoo is not installed."""
VOCAB_SIZE = 97
_MAX_LEN = 256


@cache
def tiny_model() -> PreTrainedModel:
    """Return a two-layer Llama whose logits are far apart, identical in every process."""
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=_MAX_LEN, bos_token_id=None, eos_token_id=None,
        tie_word_embeddings=False,
    )  # fmt: skip
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    generator = torch.Generator().manual_seed(20)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1:
                parameter.add_(0.1 * noise)
            elif "embed" in name:
                parameter.copy_(0.7 * noise)
            else:
                parameter.copy_(noise * parameter.shape[-1] ** -0.5 * (3.0 if "lm_head" in name else 1.0))
    if model.generation_config is not None:
        model.generation_config.eos_token_id = None
    model.eval()
    return model
