"""The parts before and after the layers of a model or head, in the form that compiled passes take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from specdec_kernels.cpu.linear import CompiledLinear, Product
from specdec_kernels.cpu.loops.product import Weights, compact
from specdec_kernels.cpu.loops.quantized import Packed
from specdec_kernels.layers.norm import FastNorm

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Ends:
    """Embedding, its join with a feature, and the output projection; see `specdec_kernels.cpu.loops.frame.Part`."""

    embedding: Weights
    head: Weights | Packed
    head_bias: Floats | None = None
    takes_features: bool = False
    is_feature_first: bool = False
    is_normed_residual: bool = False
    is_normed_state: bool = True
    join: Weights | None = None
    join_bias: Floats | None = None
    embed_norm: Floats | None = None
    feature_norm: Floats | None = None


def model_ends(embedding: torch.Tensor, head: Product) -> Ends | None:
    """Return the ends of a language model, or None if they have no compact form.

    Args:
        embedding: `[V, H]`.
        head: the output projection.
    """
    stored = head.compact
    is_tied = head.weight.data_ptr() == embedding.data_ptr()
    looked_up = head.compact if is_tied and isinstance(head, CompiledLinear) else compact(embedding)
    if stored is None or looked_up is None:
        return None
    return Ends(looked_up, stored, head.bias_array)


def compiled_norm(norm: nn.Module | None) -> Floats | None:
    """Return a norm's weight `[H]` as a numpy array; None if there is no norm."""
    return None if norm is None else FastNorm(norm).weight.float().numpy()
