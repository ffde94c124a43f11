"""Small draft models on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

import specdec_zoo


def save_draft(folder: Path, vocab_size: int, seed: int = 0, **keys: object) -> str:
    """Write a small random Llama; further keys go into its configuration."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=512,
        **keys,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def make_draft(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Return a maker of draft checkpoints, taking the vocabulary size and keys of `LlamaConfig`."""
    return lambda vocab_size, **keys: save_draft(tmp_path_factory.mktemp("draft"), vocab_size, **keys)


@pytest.fixture(scope="session")
def make_padded(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Return a maker of random drafts with a given number of logits and the zoo's tokenizer, or another."""

    def make(vocab_size: int, tokenizer: PreTrainedTokenizerBase | None = None) -> str:
        folder = tmp_path_factory.mktemp("padded")
        used = tokenizer or AutoTokenizer.from_pretrained(specdec_zoo.path("target"))
        used.save_pretrained(folder)
        return save_draft(folder, vocab_size)

    return make
