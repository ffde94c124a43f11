"""`ngram_match`: batched prompt lookup."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import IDS, check_tensor, shown
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.launch import LaunchConfig
from specdec_kernels.triton.ngram_match.reference import ngram_match_reference
from specdec_kernels.triton.results import ChainDraft, prepared, written

__all__ = ["ngram_match"]


def ngram_match(
    tokens: torch.Tensor,
    num_tokens: torch.Tensor,
    shortest: int,
    longest: int,
    width: int,
    *,
    max_nodes: torch.Tensor | None = None,
    lines: torch.Tensor | None = None,
    keeps_first: bool = False,
    fills: bool = False,
    out: ChainDraft | None = None,
    config: LaunchConfig | None = None,
) -> ChainDraft:
    """Draft the continuation of an earlier occurrence of the last tokens. Prompt lookup decoding: Saxena 2023.

    The match is the longest n-gram, from `longest` down to `shortest` tokens, at the end of the text that also occurs
    earlier; the occurrences may overlap. The draft is the continuation of its most recent occurrence; if it reaches the end
    of the text, it continues with its own tokens. With `keeps_first` the draft is the continuation of the earliest
    occurrence, up to the end of the text.

    Args:
        tokens: `[N, L]` int32 or int64, L > 0, unit stride along L; entries after a text's tokens are ignored.
        num_tokens: `[N]` integer, 0 to L, of each line.
        shortest: the shortest n-gram that counts as a match, at least 1.
        longest: the longest n-gram to look for, at least `shortest`.
        width: maximum tokens to draft, at least 1.
        max_nodes: `[B]` integer: maximum tokens to draft for each request; None for `width`.
        lines: `[B]` integer: which line has each request's text; None if N is B, and they are in order. Nothing is copied to
            the host, so the caller must keep them below N.
        keeps_first: use the earliest instead of the most recent occurrence.
        fills: whether the text's last token, instead of -1, follows what is drafted.
        out: contiguous tensors to write to; None allocates them.
        config: launch parameters of the Triton kernels; None uses the heuristic.

    Raises:
        ValueError: naming the argument whose value, shape, type, device or layout is wrong.
    """
    if tokens.dim() != 2 or tokens.shape[1] == 0:
        raise ValueError(f"tokens must be int32 or int64 [B, L] with L > 0, not {shown(tokens)}")
    check_tensor("tokens", tokens, tokens.shape, IDS, tokens, is_row_strided=True)
    size = tokens.shape[0] if lines is None else lines.numel()
    check_tensor("num_tokens", num_tokens, tokens.shape[:1], IDS, tokens)
    if lines is not None:
        check_tensor("lines", lines, (size,), IDS, tokens)
    if max_nodes is not None:
        check_tensor("max_nodes", max_nodes, (size,), IDS, tokens)
    if shortest < 1:
        raise ValueError(f"shortest={shortest} must be at least 1")
    if longest < shortest:
        raise ValueError(f"longest={longest} must be at least shortest={shortest}")
    if width < 1:
        raise ValueError(f"width={width} must be at least 1")
    out = prepared(ChainDraft, ((size, width), (size,)), out, like=tokens)
    if size == 0:
        return out
    if backend_for(tokens) is Backend.REFERENCE:
        given = (tokens, num_tokens, max_nodes, lines, shortest, longest, width, keeps_first, fills)
        return written(out, ngram_match_reference(*given))
    from specdec_kernels.triton.ngram_match.kernel import ngram_match_triton  # imports Triton

    ngram_match_triton(
        tokens, num_tokens, max_nodes, lines, shortest, longest, keeps_first, fills, *out, config
    )
    return out
