"""Penalties in plain torch: the specification."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from specdec_kernels.triton.penalise import PathRows, Texts


def penalise_reference(logits: torch.Tensor, texts: Texts, paths: PathRows, out: torch.Tensor) -> None:
    """Write `[R, V]` to `out`; see `penalise`."""
    out.copy_(logits)
    starts, vocab_size = texts.starts.tolist(), logits.shape[1]
    given = (part.tolist() for part in (paths.rows, paths.requests, paths.firsts, paths.nodes))
    for row, request, first, node in zip(*given, strict=True):
        ids, own = texts.ids[starts[request] : starts[request + 1]], out[row]
        counts, has_occurred = torch.zeros_like(own), torch.zeros_like(own, dtype=torch.bool)
        counts[ids] = texts.counts[starts[request] : starts[request + 1]]
        path = paths.drafted[_places(first, node, paths.parents)].long().clamp(0, vocab_size - 1)
        counts.index_add_(0, path, torch.ones_like(path, dtype=counts.dtype))
        has_occurred[ids] = has_occurred[path] = True
        repetition, presence, frequency = texts.penalties[:, request]
        lowered = torch.where(own > 0, own / repetition, own * repetition)
        lowered = torch.where(has_occurred, lowered, own)
        lowered = lowered - frequency * counts - presence * (counts > 0)
        own.copy_(lowered.clamp_max(torch.finfo(own.dtype).max))


def _places(first: int, node: int, parents: torch.Tensor | None) -> list[int]:
    """Return the places of the nodes from one up to the last committed token."""
    places = []
    while node >= 0:
        places.append(first + node)
        node = node - 1 if parents is None else min(int(parents[first + node]), node - 1)
    return places
