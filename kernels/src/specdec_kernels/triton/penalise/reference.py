"""Penalties in plain torch: the specification."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from specdec_kernels.triton.penalise import PathRows, Texts


def penalise_reference(logits: torch.Tensor, texts: Texts, paths: PathRows) -> None:
    """Change `logits [R, V]` in place; see `penalise`."""
    starts = texts.starts.tolist()
    for row, request, sources in zip(
        paths.rows.tolist(), paths.requests.tolist(), paths.sources, strict=True
    ):
        ids, own = texts.ids[starts[request] : starts[request + 1]], logits[row]
        counts, has_occurred = torch.zeros_like(own), torch.zeros_like(own, dtype=torch.bool)
        counts[ids] = texts.counts[starts[request] : starts[request + 1]]
        path = paths.drafted[sources[sources >= 0]].long()
        counts.index_add_(0, path, torch.ones_like(path, dtype=counts.dtype))
        has_occurred[ids] = has_occurred[path] = True
        repetition, presence, frequency = texts.penalties[:, request]
        lowered = torch.where(own > 0, own / repetition, own * repetition)
        lowered = torch.where(has_occurred, lowered, own)
        lowered = lowered - frequency * counts - presence * (counts > 0)
        own.copy_(lowered.clamp_max(torch.finfo(own.dtype).max))
