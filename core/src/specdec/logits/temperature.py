"""Temperature, and truncation by min-p, top-k and top-p."""

from __future__ import annotations

import torch

from specdec.noise import row_operations
from specdec.sampling_params import SamplingParams


def apply_temperature_and_truncation(
    logits: torch.Tensor, params: list[SamplingParams], rows: list[int]
) -> torch.Tensor:
    """Apply temperature, min-p, top-k and top-p to logits `[R, V]`: ids without probability become -inf. `logits` is kept.

    The order is vLLM's: temperature, min-p, top-k, top-p. Greedy rows are unchanged.

    Args:
        logits: `[R, V]` float32.
        params: `[B]`, one per request.
        rows: `[B]` number of consecutive logits rows of each request.
    """
    if all(p.is_greedy for p in params):
        return logits
    first = params[0]
    if all(p is first or _has_equal_settings(p, first) for p in params):
        return _truncated(_scaled(logits, first.temperature), first)
    out = logits.clone()
    start = 0
    for request, count in zip(params, rows, strict=True):
        if not request.is_greedy:
            part = out[start : start + count]
            out[start : start + count] = _truncated(_scaled(part, request.temperature), request)
        start += count
    return out


def _has_equal_settings(a: SamplingParams, b: SamplingParams) -> bool:
    return (a.temperature, a.top_k, a.top_p, a.min_p) == (b.temperature, b.top_k, b.top_p, b.min_p)


def _scaled(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Divide logits, relative to the highest, by any temperature; the best ids stay at 0 and forbidden ids at -inf."""
    limits = torch.finfo(logits.dtype)
    divisor = min(max(temperature, limits.tiny), limits.max)
    return row_operations(logits.device).scaled(logits, divisor)


def _truncated(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    vocab_size = logits.shape[-1]
    if params.min_p > 0.0:
        # p / p_max >= min_p, in logs; equal for the best id itself.
        floor = logits.amax(-1, keepdim=True) + torch.tensor(params.min_p, device=logits.device).log()
        logits = logits.masked_fill(logits < floor, -torch.inf)
    has_top_k = 0 < params.top_k < vocab_size
    if has_top_k:
        logits = _keep_top_k(logits, params.top_k)
    if params.top_p < 1.0:
        logits = _keep_top_p(logits, params.top_p, params.top_k if has_top_k else vocab_size)
    return logits


def _keep_top_k(logits: torch.Tensor, k: int) -> torch.Tensor:
    """Keep exactly the k highest; ties at the border go to the lowest ids."""
    best = logits.topk(k, -1).values[..., -1:]
    keep = logits > best
    ties = logits == best
    room = k - keep.sum(-1, keepdim=True)
    keep |= ties & (ties.cumsum(-1) <= room)
    return logits.masked_fill(~keep, -torch.inf)


def _keep_top_p(logits: torch.Tensor, top_p: float, num_candidates: int) -> torch.Tensor:
    """Keep the smallest set of most probable ids whose total reaches top_p; ties go to the lowest ids."""
    values, ids = torch.sort(logits, dim=-1, descending=True, stable=True)
    values, ids = values[..., :num_candidates], ids[..., :num_candidates]
    probs = torch.softmax(values, -1)
    is_cut = probs.cumsum(-1) - probs >= top_p
    is_cut[..., 0] = False
    kept = values.masked_fill(is_cut, -torch.inf)
    return torch.full_like(logits, -torch.inf).scatter_(-1, ids, kept)
