"""Random weights of heads, and what their configurations say of a layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Drawn(dict[str, Tensor]):
    """Weights whose logits are of order 1, all parts mattering.

    Args:
        shape: sizes and habits of the head.
        seed: of what is drawn.
    """

    def __init__(self, shape: Any, seed: int) -> None:
        super().__init__()
        self._shape = shape
        self.generator = torch.Generator().manual_seed(seed)

    def matrix(self, rows: int, columns: int) -> Tensor:
        """Return the weight of a projection."""
        return torch.randn(rows, columns, generator=self.generator) * columns**-0.5

    def vector(self, size: int, mean: float) -> Tensor:
        """Return the weight of a norm, or a bias."""
        return mean + 0.2 * torch.randn(size, generator=self.generator)

    def add_layer(self, at: str, columns: int, *, has_output_bias: bool, has_head_norms: bool) -> None:
        """Add attention over entries of a width, and what follows; names begin with `at`."""
        s = self._shape
        self[at + "post_attention_layernorm.weight"] = self.vector(s.hidden, 1.0)
        for name, heads in (("q", s.num_heads), ("k", s.num_kv_heads), ("v", s.num_kv_heads)):
            self[f"{at}self_attn.{name}_proj.weight"] = 1.5 * self.matrix(heads * s.head_dim, columns)
            if s.has_attention_bias:
                self[f"{at}self_attn.{name}_proj.bias"] = self.vector(heads * s.head_dim, 0.0)
        self[at + "self_attn.o_proj.weight"] = self.matrix(s.hidden, s.num_heads * s.head_dim)
        if has_output_bias:
            self[at + "self_attn.o_proj.bias"] = self.vector(s.hidden, 0.0)
        if has_head_norms:
            self[at + "self_attn.q_norm.weight"] = self.vector(s.head_dim, 1.0)
            self[at + "self_attn.k_norm.weight"] = self.vector(s.head_dim, 1.0)
        for name in ("gate", "up"):
            self[f"{at}mlp.{name}_proj.weight"] = self.matrix(s.intermediate, s.hidden)
        self[at + "mlp.down_proj.weight"] = self.matrix(s.hidden, s.intermediate)

    def add_vocabulary(self) -> None:
        """Add what a head has of its own: embeddings, logits, the map of its ids."""
        s = self._shape
        if s.has_own_embedding:
            self["embed_tokens.weight"] = 0.7 * torch.randn(s.vocab, s.hidden, generator=self.generator)
        if s.has_own_lm_head:
            self["lm_head.weight"] = self.matrix(s.num_logits, s.hidden)
        if s.has_map:
            ids = torch.randperm(s.vocab, generator=self.generator)[: s.num_logits].sort().values
            self["d2t"] = ids - torch.arange(s.num_logits)
            self["t2d"] = torch.zeros(s.vocab, dtype=torch.bool).index_fill_(0, ids, True)


def layer_config(shape: Any, family: str) -> dict[str, Any]:
    """Return what `config.json` says of a layer."""
    return {
        "model_type": family,
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.theta,
        "max_position_embeddings": 2048,
        "attention_bias": shape.has_attention_bias,
        "tie_word_embeddings": False,
    }
