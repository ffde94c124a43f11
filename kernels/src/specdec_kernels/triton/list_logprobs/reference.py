"""Log probabilities of emitted tokens in plain torch: the specification."""

from __future__ import annotations

import torch
from torch.nn.functional import pad


def list_logprobs_reference(
    logits: torch.Tensor,
    row_starts: torch.Tensor,
    nodes: torch.Tensor | None,
    token_ids: torch.Tensor,
    listed: torch.Tensor,
    count: int,
) -> torch.Tensor:
    """Return `[L, N + 1, 2 + 2 * count]` float64; see `list_logprobs`."""
    listed, width = listed.long(), token_ids.shape[1]
    steps = torch.arange(width, device=logits.device)
    after = steps.expand(len(listed), -1) if nodes is None else pad(nodes[listed] + 1, (1, 0))
    is_token = token_ids[listed] >= 0
    rows = (row_starts[listed, None] + torch.where(is_token, after, 0)).long()
    own = logits[rows].float()
    chosen = own.gather(2, token_ids[listed].long().clamp_min(0)[:, :, None])
    ranks = (own > chosen).sum(2, keepdim=True) + 1
    best = own.sort(dim=2, descending=True, stable=True)
    logprobs = torch.log_softmax(own, 2)
    values = logprobs.gather(2, best.indices[:, :, :count])
    own_logprobs = logprobs.gather(2, token_ids[listed].long().clamp_min(0)[:, :, None])
    return torch.cat((own_logprobs.double(), ranks, values, best.indices[:, :, :count]), 2)
