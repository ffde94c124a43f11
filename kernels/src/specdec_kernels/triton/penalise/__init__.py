"""`penalise`: repetition, presence and frequency penalties on what occurred in a text and on a drafted path behind it."""

from __future__ import annotations

from typing import NamedTuple

import torch

from specdec_kernels.triton.arguments import IDS, check_logits, check_tensor
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.launch import LaunchConfig
from specdec_kernels.triton.penalise.reference import penalise_reference

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
    """`[3, B]` float32: repetition (above 0, 1 for none), by which logits of ids that occurred are divided and negative ones
    multiplied; presence, subtracted once from ids in the output; frequency, for each occurrence there."""


class PathRows(NamedTuple):
    """The rows that are changed, and the drafted tokens whose paths lead to them."""

    rows: torch.Tensor
    """`[P]` int64: different rows of the logits."""
    requests: torch.Tensor
    """`[P]` int64: the request of each."""
    firsts: torch.Tensor
    """`[P]` int64: place of the first node of its draft in `drafted`."""
    nodes: torch.Tensor
    """`[P]` int64: its node in this draft; -1 for the last committed token."""
    drafted: torch.Tensor
    """`[M]` int64: ids of nodes; one outside the vocabulary stands for the nearest one within."""
    parents: torch.Tensor | None
    """`[M]` int64 of each node, in its draft; what does not precede it stands for the node before it, and what is negative for
    the last committed token. None for chains."""
    path_len: int
    """The most nodes of a path."""


def penalise(
    logits: torch.Tensor,
    texts: Texts,
    paths: PathRows,
    *,
    out: torch.Tensor | None = None,
    config: LaunchConfig | None = None,
) -> torch.Tensor:
    """Apply penalties to rows of logits; tokens on the path to a row count as output.

    Formulas: CTRL, arXiv 1909.05858, for repetition, OpenAI's for the others. What would be above the greatest number is that
    number. Nothing is copied to the host, so the caller must keep places and the ids of texts in range.

    Args:
        logits: `[R, V]` float32, unit stride along V.
        texts: what occurred.
        paths: the rows; others are kept as they are.
        out: float32 `[R, V]`, unit stride along V, to write to, such as `logits` itself; None allocates it.
        config: launch parameters of the Triton kernel; None uses the heuristic.

    Returns:
        `[R, V]` float32.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    check_logits("logits", logits)
    check_tensor("logits", logits, logits.shape, (torch.float32,), logits, is_row_strided=True)
    size, num_rows = len(texts.starts) - 1, paths.nodes.numel()
    for name in ("ids", "starts"):
        own = getattr(texts, name)
        check_tensor(f"texts.{name}", own, own.shape[:1], (torch.int64,), logits)
    check_tensor("texts.counts", texts.counts, texts.ids.shape, (torch.float32,), logits)
    check_tensor("texts.penalties", texts.penalties, (3, size), (torch.float32,), logits)
    for name in ("rows", "requests", "firsts", "nodes"):
        check_tensor(f"paths.{name}", getattr(paths, name), (num_rows,), (torch.int64,), logits)
    check_tensor("paths.drafted", paths.drafted, paths.drafted.shape[:1], IDS, logits)
    if paths.parents is not None:
        check_tensor("paths.parents", paths.parents, paths.drafted.shape, IDS, logits)
    if out is None:
        out = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    check_tensor("out", out, logits.shape, (torch.float32,), logits, is_row_strided=True)
    if logits.numel() == 0:
        return out
    if backend_for(logits) is Backend.REFERENCE:
        penalise_reference(logits, texts, paths, out)
        return out
    from specdec_kernels.triton.penalise.kernel import penalise_triton  # imports Triton

    penalise_triton(logits, texts, paths, out, config)
    return out
