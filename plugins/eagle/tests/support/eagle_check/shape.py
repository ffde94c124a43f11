"""What a random head is like, and its tensors under the names of the reference."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from head_check.target import VOCAB


@dataclass(frozen=True)
class Shape:
    """Sizes and habits of a head; the reference reads nothing else."""

    is_eagle3: bool = True
    vocab: int = VOCAB
    hidden: int = 32
    target_hidden: int = 32
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 8
    intermediate: int = 40
    num_layers: int = 1
    num_logits: int = VOCAB
    family: str = "llama"
    theta: float = 10000.0
    epsilon: float = 1e-5
    has_attention_bias: bool = False
    window: int | None = None
    """How many positions back a row sees, itself included."""
    windowed: tuple[int, ...] | None = None
    """Layers with that window; None for all."""
    has_own_embedding: bool = False
    has_own_lm_head: bool = True
    logit_scale: float = 1.0
    # EAGLE-1
    has_fc_bias: bool = False
    has_para_norms: bool = False
    # EAGLE-3
    num_aux: int = 3
    """0 for a head that reads the last state alone."""
    is_normed_residual: bool = False
    has_norm_before_fc: bool = False
    has_fc_norms: bool = False
    is_normed_carry: bool = False
    has_map: bool = False
    mask_id: int | None = None

    @property
    def num_states(self) -> int:
        """States of the target side by side."""
        return self.num_aux or 1


def random_tensors(shape: Shape, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return weights whose logits are of order 1, all parts mattering."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * columns**-0.5

    def vector(size: int, mean: float) -> torch.Tensor:
        return mean + 0.2 * torch.randn(size, generator=generator)

    s, out = shape, {}
    width = 2 * s.hidden if s.is_eagle3 else s.hidden
    if s.is_eagle3:
        if s.num_aux or s.hidden != s.target_hidden:
            out["fc.weight"] = matrix(s.hidden, s.num_states * s.target_hidden)
        out["layers.0.hidden_norm.weight"] = vector(s.hidden, 1.0)
        out["norm.weight"] = vector(s.hidden, 1.0)
    else:
        out["fc.weight"] = matrix(s.hidden, s.hidden + s.target_hidden)
    if s.has_fc_bias:
        out["fc.bias"] = vector(s.hidden, 0.0)
    if s.has_para_norms:
        out["embedding_layernorm.weight"] = vector(s.hidden, 1.0)
        out["hidden_states_layernorm.weight"] = vector(s.target_hidden, 1.0)
    if s.has_norm_before_fc:
        out["input_norm.weight"] = vector(s.num_states * s.target_hidden, 1.0)
    if s.has_fc_norms:
        out |= {f"fc_norm.{i}.weight": vector(s.target_hidden, 1.0) for i in range(s.num_states)}
    for index in range(s.num_layers):
        at, columns = f"layers.{index}.", width if index == 0 else s.hidden
        if s.is_eagle3 or index:
            out[at + "input_layernorm.weight"] = vector(s.hidden, 1.0)
        out[at + "post_attention_layernorm.weight"] = vector(s.hidden, 1.0)
        for name, heads in (("q", s.num_heads), ("k", s.num_kv_heads), ("v", s.num_kv_heads)):
            out[f"{at}self_attn.{name}_proj.weight"] = 1.5 * matrix(heads * s.head_dim, columns)
            if s.has_attention_bias:
                out[f"{at}self_attn.{name}_proj.bias"] = vector(heads * s.head_dim, 0.0)
        out[at + "self_attn.o_proj.weight"] = matrix(s.hidden, s.num_heads * s.head_dim)
        if s.has_attention_bias and s.family != "qwen2":
            out[at + "self_attn.o_proj.bias"] = vector(s.hidden, 0.0)
        if s.family == "qwen3":
            out[at + "self_attn.q_norm.weight"] = vector(s.head_dim, 1.0)
            out[at + "self_attn.k_norm.weight"] = vector(s.head_dim, 1.0)
        out[at + "mlp.gate_proj.weight"] = matrix(s.intermediate, s.hidden)
        out[at + "mlp.up_proj.weight"] = matrix(s.intermediate, s.hidden)
        out[at + "mlp.down_proj.weight"] = matrix(s.hidden, s.intermediate)
    if s.has_own_embedding:
        out["embed_tokens.weight"] = 0.7 * torch.randn(s.vocab, s.hidden, generator=generator)
    if s.has_own_lm_head:
        out["lm_head.weight"] = matrix(s.num_logits, s.hidden)
    if s.has_map:
        ids = torch.randperm(s.vocab, generator=generator)[: s.num_logits].sort().values
        out["d2t"] = ids - torch.arange(s.num_logits)
        out["t2d"] = torch.zeros(s.vocab, dtype=torch.bool).index_fill_(0, ids, True)
    if s.mask_id is not None:
        out["mask_hidden"] = torch.randn(1, s.num_states * s.target_hidden, generator=generator)
    return out
