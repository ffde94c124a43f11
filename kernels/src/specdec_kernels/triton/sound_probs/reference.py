"""Own copies of q in plain torch: the specification."""

from __future__ import annotations

import torch

from specdec_kernels.triton.results import PADDING_ID


def sound_probs_reference(
    token_ids: torch.Tensor, probs: torch.Tensor, tolerance: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and q; see `sound_probs`."""
    own = probs.clamp_min(0.0)  # NaN stays
    is_normal = (own.sum(-1) - 1.0).abs() <= tolerance
    own = torch.where(is_normal[..., None], own, torch.zeros_like(own))
    return torch.where(is_normal[:, :-1], token_ids, PADDING_ID), own
