"""`greedy_verify`: verification of drafted tokens at temperature 0."""

from __future__ import annotations

import torch

from specdec_kernels.arguments import check_drafts
from specdec_kernels.dispatch import Backend, backend_for
from specdec_kernels.greedy_verify.config import LaunchConfig, candidates, heuristic
from specdec_kernels.greedy_verify.reference import greedy_verify_reference
from specdec_kernels.results import ChainVerdict, prepared, written
from specdec_kernels.tuned import launch_config

__all__ = ["greedy_verify"]


def greedy_verify(
    logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    row_starts: torch.Tensor,
    num_nodes: torch.Tensor,
    *,
    out: ChainVerdict | None = None,
    config: LaunchConfig | None = None,
) -> ChainVerdict:
    """Verify chains greedily: a drafted token is accepted if it is the target's best and all before it are accepted.

    Row `row_starts[b] + j` of the logits follows the last committed token of request b for j = 0, and drafted token j - 1
    otherwise. Ties go to the lowest id; a NaN never wins. Nothing is copied to the host, so the caller must keep the row
    numbers in range.

    Args:
        logits: `[R, V]` floating point, unit stride along V.
        draft_token_ids: `[B, K]` integer, padded with -1; K may be 0.
        row_starts: `[B]` integer: first row of each request.
        num_nodes: `[B]` integer, 0 to K: drafted tokens of each request.
        out: tensors to write to; None allocates them.
        config: launch parameters of the Triton kernels; None uses tuned ones or the heuristic.

    Raises:
        ValueError: naming the argument whose shape, type, device or layout is wrong.
    """
    given = (logits, draft_token_ids, row_starts, num_nodes)
    check_drafts(*given)
    num_requests, width = draft_token_ids.shape
    out = prepared(ChainVerdict, ((num_requests,), (num_requests, width + 1)), out, like=logits)
    if num_requests == 0:
        return out
    if backend_for(logits) is Backend.REFERENCE:
        return written(out, greedy_verify_reference(*given))
    from specdec_kernels.greedy_verify.kernel import greedy_verify_triton  # imports Triton

    chosen = config or launch_config("greedy_verify", heuristic, candidates, logits.device, logits.shape[1])
    greedy_verify_triton(*given, *out, chosen)
    return out
