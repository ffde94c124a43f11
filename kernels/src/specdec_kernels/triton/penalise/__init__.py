"""`penalise`: repetition, presence and frequency penalties on what occurred in a text and on a drafted path behind it."""

from __future__ import annotations

from typing import NamedTuple

import torch

from specdec_kernels.triton.arguments import IDS, check_logits, check_tensor, shown
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.penalise.config import LaunchConfig, candidates, heuristic
from specdec_kernels.triton.penalise.reference import penalise_reference
from specdec_kernels.triton.tuned import launch_config

__all__ = ["PathRows", "Texts", "penalise"]


class Texts(NamedTuple):
    """What occurred in the texts of B requests, request after request, and their penalties."""

    ids: torch.Tensor
    """`[N]` int64: the ids that occurred, different within a request."""
    counts: torch.Tensor
    """`[N]` float32: how often each occurred in the output; 0 if only in the prompt."""
    starts: torch.Tensor
    """`[B + 1]` int64: first place of each request."""
    penalties: torch.Tensor
    """`[3, B]` float32: for repetition (above 0, 1 for none), presence and frequency; see `process_logits`."""


class PathRows(NamedTuple):
    """The rows that are changed, and the path of drafted tokens to each."""

    rows: torch.Tensor
    """`[P]` int64: different rows of the logits."""
    requests: torch.Tensor
    """`[P]` int64: the request of each."""
    sources: torch.Tensor
    """`[P, D]` int64: places of the path's tokens in `drafted`, padded with -1 anywhere."""
    drafted: torch.Tensor
    """`[M]` int64 ids of the vocabulary."""


def penalise(
    logits: torch.Tensor, texts: Texts, paths: PathRows, *, config: LaunchConfig | None = None
) -> None:
    """Apply penalties to rows of logits, in place; tokens on the path to a row count as output.

    Formulas as in `process_logits`, whose tables of the whole vocabulary it does not need. What would be above the greatest
    number is that number. Nothing is copied to the host, so the caller must keep ids and places in range.

    Args:
        logits: `[R, V]` float32, unit stride along V.
        texts: what occurred.
        paths: the rows.
        config: launch parameters of the Triton kernel; None uses tuned ones or the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    check_logits("logits", logits)
    check_tensor("logits", logits, logits.shape, (torch.float32,), logits, is_row_strided=True)
    if paths.sources.dim() != 2:
        raise ValueError(f"paths.sources must be int64 [P, D], not {shown(paths.sources)}")
    size, num_rows = len(texts.starts) - 1, len(paths.sources)
    for name in ("ids", "starts"):
        own = getattr(texts, name)
        check_tensor(f"texts.{name}", own, own.shape[:1], (torch.int64,), logits)
    check_tensor("texts.counts", texts.counts, texts.ids.shape, (torch.float32,), logits)
    check_tensor("texts.penalties", texts.penalties, (3, size), (torch.float32,), logits)
    for name in ("rows", "requests"):
        check_tensor(f"paths.{name}", getattr(paths, name), (num_rows,), (torch.int64,), logits)
    check_tensor("paths.sources", paths.sources, paths.sources.shape, (torch.int64,), logits)
    check_tensor("paths.drafted", paths.drafted, paths.drafted.shape[:1], IDS, logits)
    if num_rows == 0:
        return
    if backend_for(logits) is Backend.REFERENCE:
        penalise_reference(logits, texts, paths)
        return
    from specdec_kernels.triton.penalise.kernel import penalise_triton  # imports Triton

    chosen = config or launch_config("penalise", heuristic, candidates, logits.device, paths.sources.shape[1])
    penalise_triton(logits, texts, paths, chosen)
