"""Shapes of the models created at run time."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import LlamaConfig


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama model."""

    name: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    max_positions: int = 1024

    def config(self) -> LlamaConfig:
        """Return the transformers configuration, without an end-of-text token."""
        return LlamaConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_hidden_layers=self.num_layers,
            num_attention_heads=self.num_heads,
            num_key_value_heads=self.num_kv_heads,
            max_position_embeddings=self.max_positions,
            bos_token_id=None,
            eos_token_id=None,
            tie_word_embeddings=False,
        )


LLAMA_8B = Shape("8B", 128256, 4096, 14336, 32, 32, 8, 65536)
"""Llama 3.1 8B, with half of its positions."""
TINY = Shape("tiny", 512, 64, 96, 4, 4, 2)
