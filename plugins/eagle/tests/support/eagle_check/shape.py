"""What a random head is like, and its tensors under the names of the reference."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from head_check.target import VOCAB
from head_check.tensors import Drawn


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
    s, out = shape, Drawn(shape, seed)
    width = 2 * s.hidden if s.is_eagle3 else s.hidden
    if s.is_eagle3:
        if s.num_aux or s.hidden != s.target_hidden:
            out["fc.weight"] = out.matrix(s.hidden, s.num_states * s.target_hidden)
        out["layers.0.hidden_norm.weight"] = out.vector(s.hidden, 1.0)
        out["norm.weight"] = out.vector(s.hidden, 1.0)
    else:
        out["fc.weight"] = out.matrix(s.hidden, s.hidden + s.target_hidden)
    if s.has_fc_bias:
        out["fc.bias"] = out.vector(s.hidden, 0.0)
    if s.has_para_norms:
        out["embedding_layernorm.weight"] = out.vector(s.hidden, 1.0)
        out["hidden_states_layernorm.weight"] = out.vector(s.target_hidden, 1.0)
    if s.has_norm_before_fc:
        out["input_norm.weight"] = out.vector(s.num_states * s.target_hidden, 1.0)
    if s.has_fc_norms:
        out |= {f"fc_norm.{i}.weight": out.vector(s.target_hidden, 1.0) for i in range(s.num_states)}
    for index in range(s.num_layers):
        at, columns = f"layers.{index}.", width if index == 0 else s.hidden
        if s.is_eagle3 or index:
            out[at + "input_layernorm.weight"] = out.vector(s.hidden, 1.0)
        has_output_bias = s.has_attention_bias and s.family != "qwen2"
        out.add_layer(at, columns, has_output_bias=has_output_bias, has_head_norms=s.family == "qwen3")
    out.add_vocabulary()
    if s.mask_id is not None:
        out["mask_hidden"] = torch.randn(1, s.num_states * s.target_hidden, generator=out.generator)
    return out
