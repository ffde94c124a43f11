"""What a model computes, as data: the modules of each layer, and what is done between them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import torch
from torch import nn

from specdec_kernels.attended_rows import AttendedRows
from specdec_runtime.interfaces import BlockEmbedding


class Activation(Enum):
    """Of the gate of a feed-forward layer."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


class Norm(NamedTuple):
    """A root-mean-square norm, `x / rms(x) * weight`, or the same of `x` less its mean."""

    weight: torch.Tensor
    """The factor; some modules store it less one."""
    epsilon: float
    is_centred: bool = False
    """The mean is subtracted first: a layer norm without bias."""


class Rotation(NamedTuple):
    """Which rotary factors a layer takes, and what they rotate."""

    layer_type: str | None
    """What the model's rotary module is asked for, where its layers take different factors."""
    width: int
    """The first dimensions of a head, which are rotated."""
    is_interleaved: bool
    """Dimensions 2d and 2d + 1 are rotated together, instead of d and d + width / 2."""


@dataclass(frozen=True)
class LayerParts:
    """One decoder layer: attention, then a gated feed-forward layer, each added to the residual stream."""

    index: int
    """Its layer in the cache."""
    window: int | None
    scaling: float
    """Factor on attention scores."""
    head_dim: int
    num_heads: int
    num_kv_heads: int
    qkv: tuple[nn.Linear, ...]
    """Queries, keys and values, joined or apart."""
    out: nn.Linear
    gate_up: tuple[nn.Linear, ...]
    down: nn.Linear
    activation: Activation
    rotation: Rotation | None
    """None if positions are not encoded."""
    input_norm: Norm | None = None
    attended_norm: Norm | None = None
    """Of attention's output, before it is added."""
    mlp_norm: Norm | None = None
    mlp_out_norm: Norm | None = None
    """Of the feed-forward layer's output, before it is added."""
    is_parallel: bool = False
    """The feed-forward layer reads what attention reads, and has no norm of its own."""
    query_norm: Norm | None = None
    """Of each head, or of all at once (`is_joint_norm`)."""
    key_norm: Norm | None = None
    value_norm: Norm | None = None
    is_joint_norm: bool = False
    are_keys_values: bool = False
    """Values are the keys before their norm."""
    softcap: float | None = None
    """Attention scores are `softcap * tanh(score / softcap)`."""
    attended: AttendedRows | None = None
    """Rows of the cache that a proposer's layer attends to; None for all."""
    residual_scale: float = 1.0
    """Factor on what is added to the residual stream."""
    output_scale: float = 1.0
    """Factor on the layer's output."""

    @property
    def is_llama(self) -> bool:
        """Whether the layer is Llama's, with or without norms of query and key heads."""
        return (
            self.activation is Activation.SILU
            and self.rotation == Rotation(None, self.head_dim, is_interleaved=False)
            and self.input_norm is not None
            and self.mlp_norm is not None
            and not (self.input_norm.is_centred or self.mlp_norm.is_centred)
            and self.input_norm.weight.dtype == self.out.weight.dtype
            and self.softcap is None
            and not any((self.attended_norm, self.mlp_out_norm, self.value_norm))
            and not (self.is_joint_norm or self.are_keys_values)
            and (self.query_norm and self.query_norm.epsilon) == (self.key_norm and self.key_norm.epsilon)
            and self.residual_scale == self.output_scale == 1.0
        )


@dataclass(frozen=True)
class ModelParts:
    """A model whose layers are `LayerParts`."""

    embed_tokens: nn.Embedding | BlockEmbedding
    layers: tuple[LayerParts, ...]
    norm: Norm
    rotary: nn.Module
    head: nn.Linear
    embed_scale: float = 1.0
    logits_scale: float = 1.0
    """Factor on logits."""
    logits_softcap: float | None = None

    @property
    def is_llama(self) -> bool:
        """Whether the model is Llama's, with or without norms of query and key heads."""
        is_scaled = (self.embed_scale, self.logits_scale, self.logits_softcap) != (1.0, 1.0, None)
        return not is_scaled and all(layer.is_llama for layer in self.layers)
