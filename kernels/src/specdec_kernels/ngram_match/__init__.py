"""`ngram_match`: prompt lookup over whole batches of texts."""

from __future__ import annotations

from typing import NamedTuple

import torch

from specdec_kernels.dispatch import Backend, backend_for
from specdec_kernels.ngram_match.config import LaunchConfig, heuristic
from specdec_kernels.ngram_match.reference import ngram_match_reference
from specdec_kernels.noise.arguments import IDS, check_tensor, shown

__all__ = ["ChainDraft", "ngram_match"]


class ChainDraft(NamedTuple):
    """A chain per request."""

    token_ids: torch.Tensor
    """`[B, width]` int64, padded with -1."""
    num_nodes: torch.Tensor
    """`[B]` int64: drafted tokens of each request."""


def ngram_match(
    tokens: torch.Tensor,
    num_tokens: torch.Tensor,
    shortest: int,
    longest: int,
    width: int,
    *,
    max_nodes: torch.Tensor | None = None,
    keeps_first: bool = False,
    out: ChainDraft | None = None,
    config: LaunchConfig | None = None,
) -> ChainDraft:
    """Draft what followed when the last tokens occurred before. Prompt lookup decoding: Saxena 2023.

    The longest n-gram, `longest` down to `shortest` tokens, that ends the text and ends somewhere before is the match; it may
    overlap the end. What follows its most recent occurrence is drafted, and where that reaches the end of the text it reads
    on in itself; with `keeps_first` what follows its earliest one, up to the end of the text.

    Args:
        tokens: `[B, L]` int32 or int64, L > 0, unit stride along L; what stands behind a row's tokens is ignored.
        num_tokens: `[B]` integer, 0 to L.
        shortest: the shortest n-gram that counts as a match, at least 1.
        longest: the longest n-gram to look for, at least `shortest`.
        width: most tokens to draft, at least 1.
        max_nodes: `[B]` integer: most tokens to draft for each request; None for `width`.
        keeps_first: take the earliest instead of the most recent occurrence.
        out: contiguous tensors to write to; None allocates them.
        config: launch parameters of the Triton kernels; None takes the heuristic.

    Raises:
        ValueError: naming the argument whose value, shape, type, device or layout is wrong.
    """
    if tokens.dim() != 2 or tokens.shape[1] == 0:
        raise ValueError(f"tokens must be int32 or int64 [B, L] with L > 0, not {shown(tokens)}")
    check_tensor("tokens", tokens, tokens.shape, IDS, tokens, is_row_strided=True)
    size = tokens.shape[0]
    check_tensor("num_tokens", num_tokens, (size,), IDS, tokens)
    if max_nodes is not None:
        check_tensor("max_nodes", max_nodes, (size,), IDS, tokens)
    if shortest < 1:
        raise ValueError(f"shortest={shortest} must be at least 1")
    if longest < shortest:
        raise ValueError(f"longest={longest} must be at least shortest={shortest}")
    if width < 1:
        raise ValueError(f"width={width} must be at least 1")
    if out is None:
        num_nodes = torch.empty(size, dtype=torch.int64, device=tokens.device)
        out = ChainDraft(num_nodes.new_empty((size, width)), num_nodes)
    check_tensor("out.token_ids", out.token_ids, (size, width), (torch.int64,), tokens)
    check_tensor("out.num_nodes", out.num_nodes, (size,), (torch.int64,), tokens)
    if size == 0:
        return out
    if backend_for(tokens) is Backend.REFERENCE:
        results = ngram_match_reference(tokens, num_tokens, max_nodes, shortest, longest, width, keeps_first)
        for tensor, result in zip(out, results, strict=True):
            tensor.copy_(result)
        return out
    from specdec_kernels.ngram_match.kernel import ngram_match_triton  # imports Triton

    chosen = config or heuristic(tokens.shape[1])
    ngram_match_triton(tokens, num_tokens, max_nodes, shortest, longest, keeps_first, *out, chosen)
    return out
