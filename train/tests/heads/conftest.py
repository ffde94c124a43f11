"""A small random target and text for it."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB_SIZE = 97


@pytest.fixture
def target() -> LlamaForCausalLM:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture
def documents() -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    texts = []
    for length in (300, 200, 400, 350):
        phrase = torch.randint(1, 60, (23,), generator=generator).tolist()
        texts.append((phrase * (length // len(phrase) + 1))[:length])
    return texts
