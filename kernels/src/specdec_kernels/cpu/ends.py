"""The parts before and after the layers of a model or head, in the form that compiled passes take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
from torch import nn

from specdec_kernels.cpu.linear import CompiledLinear, Product
from specdec_kernels.cpu.loops.blocks import Table, block_table
from specdec_kernels.cpu.loops.product import Weights, compact
from specdec_kernels.cpu.loops.quantized import Packed
from specdec_kernels.layers.parts import ModelParts, Norm
from specdec_runtime.interfaces import BlockEmbedding

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Ends:
    """Embedding, its join with a feature, the output projection, norms and factors; see `specdec_kernels.cpu.loops.frame`."""

    embedding: Weights | Table
    head: Weights | Packed | Table
    num_logits: int
    num_ids: int
    hidden_size: int
    head_bias: Floats | None = None
    reads_features: bool = False
    is_feature_first: bool = False
    is_normed_residual: bool = False
    is_normed_state: bool = True
    join: Weights | None = None
    join_bias: Floats | None = None
    embed_norm: Norm | None = None
    feature_norm: Norm | None = None
    first_norm: Norm | None = None
    final_norm: Norm | None = None
    embed_scale: float = 1.0
    logits_scale: float = 1.0
    logits_softcap: float | None = None


def model_ends(parts: ModelParts, head: Product) -> Ends | None:
    """Return the ends of a language model, or None if they have no compact form.

    Args:
        parts: the model.
        head: its output projection.
    """
    stored, looked_up = head.compact, embedding_of(parts.embed_tokens, head)
    if stored is None or looked_up is None:
        return None
    return Ends(
        embedding=looked_up,
        head=stored,
        num_logits=head.num_out,
        num_ids=parts.embed_tokens.num_embeddings,
        hidden_size=parts.embed_tokens.embedding_dim,
        head_bias=head.bias_array,
        first_norm=parts.layers[0].input_norm,
        final_norm=parts.norm,
        embed_scale=parts.embed_scale,
        logits_scale=parts.logits_scale,
        logits_softcap=parts.logits_softcap,
    )


def embedding_of(embedding: nn.Embedding | BlockEmbedding, head: Product) -> Weights | Table | None:
    """Return what an embedding holds, which may be what the output projection holds; None if it has no compact form."""
    if isinstance(embedding, BlockEmbedding):
        return block_table([(embedding.kind, embedding.weight.data_ptr(), embedding.num_embeddings)], 1)
    weight = embedding.weight.detach()
    is_tied = isinstance(head, CompiledLinear) and head.weight.data_ptr() == weight.data_ptr()
    return cast(Weights, head.compact) if is_tied else compact(weight)


def floats_of(norm: Norm | None) -> Floats | None:
    """Return a norm's weight as a numpy array; None if there is no norm."""
    return None if norm is None else norm.weight.float().numpy()
