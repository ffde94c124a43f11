"""The target's probabilities from p-logits."""

from __future__ import annotations

import torch


def target_probs(logits: torch.Tensor, rows: torch.Tensor, is_greedy: torch.Tensor | None) -> torch.Tensor:
    """Return p `[R, V]` in float32 (float64 for float64 logits); greedy rows are one-hot at their argmax.

    A row that is not made of numbers is NaN throughout.

    Args:
        logits: `[R, V]`.
        rows: `[G, N + 1]` the rows of requests; those of others are not greedy.
        is_greedy: `[G]`, or None if no request is.
    """
    probs = torch.softmax(logits if logits.dtype is torch.float64 else logits.float(), -1).contiguous()
    if is_greedy is not None:
        laws, given = probs[rows], logits[rows]
        best = given.argmax(-1, keepdim=True)
        is_one_hot = is_greedy[:, None, None] & (given.gather(-1, best) > -torch.inf)
        at_best = torch.where(is_one_hot, 1.0, laws.gather(-1, best))
        probs[rows] = laws.masked_fill_(is_one_hot, 0.0).scatter_(-1, best, at_best)
    return probs
