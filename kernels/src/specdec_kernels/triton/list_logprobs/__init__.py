"""`list_logprobs`: log probabilities of the tokens of verdicts, their ranks, and the most probable tokens beside them."""

from __future__ import annotations

import torch

from specdec_kernels.triton.arguments import IDS, check_logits, check_tensor, shown
from specdec_kernels.triton.dispatch import Backend, backend_for
from specdec_kernels.triton.launch import LaunchConfig
from specdec_kernels.triton.list_logprobs.reference import list_logprobs_reference

__all__ = ["list_logprobs"]


def list_logprobs(
    logits: torch.Tensor,
    row_starts: torch.Tensor,
    nodes: torch.Tensor | None,
    token_ids: torch.Tensor,
    listed: torch.Tensor,
    count: int,
    *,
    out: torch.Tensor | None = None,
    config: LaunchConfig | None = None,
) -> torch.Tensor:
    """List log probabilities of emitted tokens, whatever the number of requests by one launch.

    Token i of request b was chosen from row `row_starts[b]` of the logits if i is 0, else from row
    `row_starts[b] + 1 + nodes[b, i - 1]`. Nothing is copied to the host, so the caller must keep rows and ids in range.

    Args:
        logits: `[R, V]` floating point, unit stride along V.
        row_starts: `[B]` integer: first row of each request.
        nodes: `[B, N]` integer, unit stride along N: accepted nodes; None for chains, whose node i is i.
        token_ids: `[B, N + 1]` integer, unit stride along N: emitted tokens, padded with -1.
        listed: `[L]` integer: requests that list.
        count: the most probable tokens to list, 0 to V.
        out: contiguous float64 `[L, N + 1, 2 + 2 * count]` to write to; None allocates it.
        config: launch parameters of the Triton kernel; None uses the heuristic.

    Returns:
        for each token its log probability, its rank from 1, then log probabilities and ids of the `count` most probable tokens,
        highest first, equal ones by id. What belongs to padding means nothing.

    Raises:
        ValueError: naming the argument whose value, shape, type, device or layout is wrong.
    """
    check_logits("logits", logits)
    if token_ids.dim() != 2 or not token_ids.shape[1]:
        raise ValueError(f"token_ids must be int32 or int64 [B, N + 1], not {shown(token_ids)}")
    if not 0 <= count <= logits.shape[1]:
        raise ValueError(f"count={count} must be between 0 and {logits.shape[1]}")
    size, num_tokens = token_ids.shape
    check_tensor("token_ids", token_ids, (size, num_tokens), IDS, logits, is_row_strided=True)
    check_tensor("row_starts", row_starts, (size,), IDS, logits)
    check_tensor("listed", listed, listed.shape[:1], IDS, logits)
    if nodes is not None:
        check_tensor("nodes", nodes, (size, num_tokens - 1), IDS, logits, is_row_strided=True)
    shape = (len(listed), num_tokens, 2 + 2 * count)
    if out is None:
        out = torch.empty(shape, dtype=torch.float64, device=logits.device)
    check_tensor("out", out, shape, (torch.float64,), logits)
    if not len(listed):
        return out
    given = (logits, row_starts, nodes, token_ids, listed, count)
    if backend_for(logits) is Backend.REFERENCE:
        return out.copy_(list_logprobs_reference(*given))
    from specdec_kernels.triton.list_logprobs.kernel import list_logprobs_triton  # imports Triton

    list_logprobs_triton(*given, out, config)
    return out
