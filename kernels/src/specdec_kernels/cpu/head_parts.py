"""The parts of a draft head's stage, prepared for compiled passes."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from torch import nn

from specdec.interfaces import Declined
from specdec_kernels.cpu.ends import Ends, embedding_of
from specdec_kernels.cpu.linear import CompiledLinear, compiled_linear
from specdec_kernels.cpu.stack import CompiledStack
from specdec_kernels.layers.behaviour import norm_of
from specdec_kernels.layers.layer import FusedLayer
from specdec_kernels.layers.parts import LayerParts, Norm
from specdec_kernels.layers.rotary import RotaryTables
from specdec_kernels.layers.structure import is_plain_linear, layer_parts, like_of
from specdec_runtime.interfaces import BlockEmbedding, BlockLinear, DraftHead, HeadParts, Runner

_UNKNOWN = Declined("its layers are not those of Llama")


def head_stack(runner: Runner, stage: int) -> tuple[CompiledStack, RotaryTables] | Declined:
    """Return a stage prepared for compiled passes, and its rotary factors."""
    parts = cast(DraftHead, runner.module).parts(stage)
    if parts is None or not _has_known_ends(parts):
        return _UNKNOWN
    like = like_of(cast(nn.Embedding, parts.embed_tokens))
    described: list[LayerParts] = []
    for layer in parts.layers:
        known = layer_parts(layer, parts.rotary, runner.windows, like=like)
        if isinstance(known, Declined):
            return known
        described.append(known)
    try:
        norms = {name: _norm(getattr(parts, name), like.shape[1]) for name in _NORMS}
    except ValueError as error:
        return Declined(str(error))
    described[0] = replace(described[0], input_norm=norms["first_norm"])
    layers = [FusedLayer(layer, make_linear=compiled_linear) for layer in described]
    ends = _ends(parts, norms)
    if ends is None or not CompiledStack.supports(layers, ends):
        return Declined("its sizes, biases or dtypes are none that compiled products take")
    return CompiledStack(layers, ends), RotaryTables(parts.rotary, like, described)


_NORMS = ("norm", "first_norm", "embed_norm", "feature_norm")


def _norm(module: nn.Module | None, size: int) -> Norm | None:
    norm = norm_of(module, size)
    if norm is None and module is not None:
        raise ValueError(f"its {type(module).__name__} is a norm of another kind")
    return norm


def _has_known_ends(parts: HeadParts) -> bool:
    return (
        type(parts.embed_tokens) in (nn.Embedding, BlockEmbedding)
        and (isinstance(parts.head, BlockLinear) or is_plain_linear(parts.head))
        and (parts.join is None or is_plain_linear(parts.join))
    )


def _ends(parts: HeadParts, norms: dict[str, Norm | None]) -> Ends | None:
    head, embed = parts.head, parts.embed_tokens
    assert isinstance(head, nn.Linear | BlockLinear) and isinstance(embed, nn.Embedding | BlockEmbedding)
    projection = compiled_linear([head])
    stored, looked_up = projection.compact, embedding_of(embed, projection)
    joined = None if parts.join is None else CompiledLinear([parts.join])
    if stored is None or looked_up is None or (joined is not None and joined.compact is None):
        return None
    return Ends(
        embedding=looked_up,
        head=stored,
        num_logits=projection.num_out,
        num_ids=embed.num_embeddings,
        hidden_size=embed.embedding_dim,
        head_bias=projection.bias_array,
        reads_features=True,
        is_feature_first=parts.is_feature_first,
        is_normed_residual=parts.is_normed_residual,
        is_normed_state=parts.is_normed_carry,
        join=None if joined is None else joined.compact,
        join_bias=None if joined is None else joined.bias_array,
        embed_norm=norms["embed_norm"],
        feature_norm=norms["feature_norm"],
        first_norm=norms["first_norm"],
        final_norm=norms["norm"],
    )
