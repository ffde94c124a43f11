"""Greedy verification in plain torch: the specification."""

from __future__ import annotations

import torch

from specdec_kernels.results import PADDING_ID


def greedy_verify_reference(
    logits: torch.Tensor, draft_token_ids: torch.Tensor, row_starts: torch.Tensor, num_nodes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `num_accepted [B]` and `token_ids [B, K + 1]`; see `greedy_verify`."""
    width = draft_token_ids.shape[1]
    depth = torch.arange(width + 1, device=logits.device)
    is_row = depth <= num_nodes[:, None]  # [B, K + 1]
    rows = torch.where(is_row, row_starts[:, None] + depth, 0)
    best = best_ids(logits)[rows]  # [B, K + 1]
    stands = (draft_token_ids == best[:, :width]) & is_row[:, 1:]
    num_accepted = stands.long().cumprod(1).sum(1)
    emitted = torch.where(depth <= num_accepted[:, None], best, PADDING_ID)
    return num_accepted, emitted


def best_ids(logits: torch.Tensor) -> torch.Tensor:
    """Return the id `[R]` of the greatest logit of each row; ties go to the lowest id, a NaN never wins."""
    vocab_size = logits.shape[1]
    comparable = torch.where(logits.isnan(), -torch.inf, logits)
    ids = torch.arange(vocab_size, device=logits.device)
    is_best = comparable == comparable.amax(1, keepdim=True)
    return torch.where(is_best, ids, vocab_size).amin(1)
