"""Prompt lookup in plain torch: the specification."""

from __future__ import annotations

import torch

from specdec_kernels.triton.results import PADDING_ID


def ngram_match_reference(
    tokens: torch.Tensor,
    num_tokens: torch.Tensor,
    max_nodes: torch.Tensor | None,
    lines: torch.Tensor | None,
    shortest: int,
    longest: int,
    width: int,
    keeps_first: bool,
    fills: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `token_ids [B, width]` and `num_nodes [B]`; see `ngram_match`."""
    if lines is not None:
        tokens, num_tokens = tokens[lines.long()], num_tokens[lines.long()]
    size, columns = tokens.shape
    ends = torch.arange(columns, device=tokens.device)  # end position of an n-gram
    last = num_tokens.long()[:, None] - 1
    lengths = torch.zeros((size, columns), dtype=torch.int64, device=tokens.device)
    agrees = ends < last
    for back in range(min(longest, columns)):
        wanted = tokens.gather(1, (last - back).clamp(min=0))
        found = tokens[:, (ends - back).clamp(min=0)]
        agrees = agrees & (ends >= back) & (found == wanted)
        lengths += agrees
    best = lengths.amax(1, keepdim=True)
    is_best = (lengths == best) & (best >= shortest)
    earliest = torch.where(is_best, ends + 1, columns).amin(1)
    source = earliest if keeps_first else torch.where(is_best, ends + 1, 0).amax(1)
    has_match = is_best.any(1)
    period = (num_tokens - source).clamp(min=1)
    count = torch.full_like(source, width)
    if max_nodes is not None:
        count = torch.minimum(count, max_nodes.clamp(min=0))
    if keeps_first:
        count = torch.minimum(count, period)
    count = torch.where(has_match, count, 0)
    steps = torch.arange(width, device=tokens.device)
    is_drafted = steps < count[:, None]
    read = torch.where(is_drafted, source[:, None] + steps % period[:, None], 0)
    filler = tokens.gather(1, last.clamp(min=0)).long() if fills else PADDING_ID
    return torch.where(is_drafted, tokens.gather(1, read).long(), filler), count
