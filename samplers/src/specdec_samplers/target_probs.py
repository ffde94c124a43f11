"""The target's probabilities from p-logits."""

from __future__ import annotations

import numpy as np
import torch

from specdec.samplers import raise_not_numbers


def target_probs(logits: torch.Tensor, rows: torch.Tensor, is_greedy: torch.Tensor | None) -> torch.Tensor:
    """Return p `[R, V]` in float32 (float64 for float64 logits); greedy rows are one-hot at their argmax.

    A device is not waited for. A row that is not made of numbers is NaN throughout there.

    Args:
        logits: `[R, V]`.
        rows: `[B, N + 1]` the rows of each request.
        is_greedy: `[B]`, or None if no request is.

    Raises:
        FloatingPointError: if a row is not made of numbers; only on the CPU.
    """
    probs = torch.softmax(logits if logits.dtype is torch.float64 else logits.float(), -1).contiguous()
    if is_greedy is not None:
        flags = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
        flags[rows] = is_greedy[:, None]
        best = logits.argmax(-1, keepdim=True)
        is_one_hot = flags[:, None] & (logits.gather(1, best) > -torch.inf)
        at_best = torch.where(is_one_hot, 1.0, probs.gather(1, best))
        probs.masked_fill_(is_one_hot, 0.0).scatter_(1, best, at_best)
    if probs.device.type == "cpu" and not np.isfinite(probs.numpy()[:, 0]).all():
        raise_not_numbers()
    return probs
