"""Temperature and truncation in plain torch: the specification."""

from __future__ import annotations

import torch

from specdec_kernels.triton.gumbel_sample.reference import clamped
from specdec_kernels.triton.process_logits.parameters import Cuts

WEIGHT_ONE = 2.0**40
"""Weights `exp` are integers in this unit, so their sums do not depend on the order."""


def process_logits_reference(logits: torch.Tensor, cuts: Cuts) -> torch.Tensor:
    """Return p-logits `[R, V]` float32; see `process_logits`."""
    out = logits.float()
    cut = _heated(out, cuts.temperatures)
    if cuts.min_p is not None:
        cut = cut.masked_fill(cut < cuts.min_p[:, None].log(), -torch.inf)
    is_kept = kept(cut, cuts.top_k, cuts.top_p) | cut.isnan().any(1, keepdim=True)
    return torch.where(cuts.temperatures[:, None] > 0, cut.masked_fill(~is_kept, -torch.inf), out)


def _heated(logits: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
    """Subtract the best logit, then divide by the temperature; the best ids stay at 0 and forbidden ones at -inf."""
    best = logits.amax(1, keepdim=True)
    below = torch.where(logits == best, 0.0, logits - best)
    scaled = below / clamped(temperatures)[:, None]
    return torch.where(logits == -torch.inf, logits, scaled)


def kept(logits: torch.Tensor, top_k: torch.Tensor | None, top_p: torch.Tensor | None) -> torch.Tensor:
    """Return bool `[R, V]`: the ids that top-k keeps and that top-p then keeps among them."""
    values, ids = torch.sort(logits, dim=1, descending=True, stable=True)
    places = torch.arange(logits.shape[1], device=logits.device)
    is_kept = torch.ones_like(values, dtype=torch.bool)
    if top_k is not None:
        is_kept = (places < top_k[:, None]) | (top_k <= 0)[:, None]
    if top_p is not None:
        weights = torch.where(is_kept, (values.exp() * WEIGHT_ONE).long(), 0)
        before = weights.cumsum(1) - weights
        bound = (top_p.double() * weights.sum(1).double()).ceil().long().clamp(min=1)
        is_kept = is_kept & ((before < bound[:, None]) | (top_p >= 1)[:, None])
    return torch.zeros_like(is_kept).scatter(1, ids, is_kept)
