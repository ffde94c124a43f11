"""Prompt lookup as tensor operations without host synchronisation."""

from __future__ import annotations

import torch


def find_sources(
    tokens: torch.Tensor, num_tokens: torch.Tensor, shortest: int, longest: int, *, keeps_first: bool
) -> torch.Tensor:
    """Find where the text continues after the match of each row; makes the same choice as `reference.draft`.

    Every position is compared with the end of its row, so the time grows with L.

    Args:
        tokens: `[B, L]`; entries after a row's tokens are ignored.
        num_tokens: `[B]` int64 tokens per row.
        shortest: the shortest n-gram that counts as a match.
        longest: the longest n-gram to look for.
        keeps_first: choose the earliest instead of the most recent occurrence.

    Returns:
        `[B]` int64: position after the chosen occurrence, or 0 without a match.
    """
    width = tokens.shape[1]
    positions = torch.arange(width, device=tokens.device)
    last = num_tokens[:, None] - 1
    agrees = positions < last  # [B, L]: the n-gram ending here equals the row's end, so far
    matched = torch.zeros(tokens.shape, dtype=torch.int32, device=tokens.device)
    for back in range(min(longest, width)):
        wanted = tokens.gather(1, (last - back).clamp(0, width - 1))
        agrees[:, :back].fill_(False)
        agrees[:, back:] &= tokens[:, : width - back] == wanted
        matched += agrees
    best = matched.amax(dim=1, keepdim=True)
    is_best = (matched == best) & (best >= shortest)
    after = positions + 1
    if keeps_first:
        chosen = torch.where(is_best, after, width + 1).amin(dim=1)
        return torch.where(chosen > width, 0, chosen)
    return torch.where(is_best, after, 0).amax(dim=1)


def copy_from(
    tokens: torch.Tensor,
    num_tokens: torch.Tensor,
    sources: torch.Tensor,
    max_nodes: torch.Tensor,
    width: int,
    *,
    keeps_first: bool,
) -> torch.Tensor:
    """Draft the tokens that follow each source.

    Args:
        tokens: `[B, L]`.
        num_tokens: `[B]` int64 tokens per row.
        sources: `[B]` int64 from `find_sources`.
        max_nodes: `[B]` int64 maximum number of tokens to draft.
        width: columns of the result; no entry of `max_nodes` exceeds it.
        keeps_first: end with the text instead of continuing periodically.

    Returns:
        `[B, width]` int64, padded with -1.
    """
    steps = torch.arange(width, device=tokens.device)
    period = (num_tokens - sources).clamp(min=1)
    if keeps_first:
        max_nodes = torch.minimum(max_nodes, period)
    is_drafted = (steps < max_nodes[:, None]) & (sources > 0)[:, None]
    # A draft that reaches the end of the text continues with its own first token.
    read = sources[:, None] + steps % period[:, None]
    drafted = tokens.gather(1, torch.where(is_drafted, read, 0).clamp(max=tokens.shape[1] - 1))
    return torch.where(is_drafted, drafted.long(), -1)
